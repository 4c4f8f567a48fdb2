"""Functions that all pages use."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from callboard._inspect.access_control import keep_session
from callboard._inspect.rendering import render
from callboard._inspect.visit import Visit, read_visit
from callboard._inspect.watch import RunWatch, WatchedRun
from callboard.errors import RequestError, UnknownRun
from callboard.http import ServerState, get_server_state
from callboard.runs import FollowedRun, Run
from callboard.threads import Threads

THREADS = Threads("inspecting", 2)


def show(request: Request, template: str, **values: object) -> Response:
    """Render a template as a page."""
    page = render(template, read_visit(request), HTTPStatus.OK, names=_name_agents(request), **values)
    return keep_session(request, page)


async def show_part(request: Request, template: str, find: Callable[[], Awaitable[Mapping[str, Any]]]) -> Response:
    """Render the live part of a page. `find` returns the values of the template."""
    values = await find()
    # In a thread, because a hundred rows take about ten milliseconds.
    make = partial(render, template, read_visit(request), names=_name_agents(request), **values)
    return keep_session(request, await THREADS.run(make))


def _name_agents(request: Request) -> dict[str, str]:
    """Return the names of all agents, by id."""
    return {agent.agent_id: agent.name for agent in get_server_state(request).registry}


def read_state(request: Request) -> tuple[Visit, ServerState, RunWatch]:
    """Return the visit, the server's state, and the watched runs of this server."""
    return read_visit(request), get_server_state(request), request.app.state.watch


async def find_run(request: Request) -> Run | FollowedRun:
    """Return the run that the query names: `run` is its id, and `of` its user.

    Raises `UnknownRun`, also if the visit may not see that user.
    """
    visit, state, _ = read_state(request)
    user_id = request.query_params.get("of") or None
    if not visit.can_see(user_id):
        raise UnknownRun("there is no such run of this user")
    return await state.runs.find(request.query_params.get("run") or "", user_id)


def is_running_here(state: ServerState, watched: WatchedRun) -> bool:
    """Return whether a run still runs on this server. Another server may have taken it over and ended it."""
    return watched.ended_at is None and state.runs.is_live(watched.run.run_id)


def is_part_request(request: Request) -> bool:
    """Return whether htmx requests the live part of a page."""
    return "HX-Request" in request.headers


def redirect(address: str) -> Response:
    """Return a redirect to a page, as the response to a form."""
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)


def read_number(request: Request, name: str) -> int:
    """Return a number from the query; 0 if it is missing. Raises `RequestError` for any other text."""
    given = request.query_params.get(name, "0")
    if not (given.isascii() and given.isdigit() and len(given) < 9):
        raise RequestError(f"{name} must be a number")
    return int(given)
