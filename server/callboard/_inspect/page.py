"""Functions that all pages use."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from callboard._inspect.access_control import keep_session
from callboard._inspect.rendering import render, write
from callboard._inspect.visit import Visit, read_visit
from callboard._inspect.watch import RunWatch
from callboard.errors import RequestError, UnknownRun
from callboard.http import ServerState, get_server_state
from callboard.runs import FollowedRun, Run
from callboard.threads import Threads

PART_SECONDS = 0.9
"""How long a rendered part is used: a little less than the second after which a page asks for it again."""

READING = Threads("inspecting", 2)


class PartCache:
    """Caches the live parts of pages for `lifetime_seconds`, however many people look at them.

    A part is the same for everybody, so it must not contain data of one person.
    """

    def __init__(self, lifetime_seconds: float) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._parts: dict[Hashable, tuple[float, asyncio.Task[str]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        """Return the part with this key; if it is too old, make it. Raises the exceptions of `make`."""
        now = time.monotonic()
        self._parts = {one: part for one, part in self._parts.items() if now - part[0] < self._lifetime_seconds}
        if key not in self._parts:
            self._parts[key] = (now, asyncio.create_task(_run(make), name="make a page"))
        # Shielded: if the first request is cancelled, the others still wait for the same task.
        return await asyncio.shield(self._parts[key][1])


async def _run(make: Callable[[], Awaitable[str]]) -> str:
    return await make()


def show(request: Request, template: str, **values: object) -> Response:
    """Render a template as a page."""
    page = render(template, read_visit(request), HTTPStatus.OK, names=_name_agents(request), **values)
    return keep_session(request, page)


async def show_part(request: Request, template: str, find: Callable[[], Awaitable[Mapping[str, object]]]) -> Response:
    """Render the live part of a page, the same for everybody; `find` returns the values of the template."""
    visit = read_visit(request)
    # Without the session: the part is the same for everybody.
    shared_visit = replace(visit, session=None, form={})

    async def make() -> str:
        values = await find()
        # In a thread, because a hundred rows take some ten milliseconds, once a second.
        return await READING.run(partial(write, template, shared_visit, names=_name_agents(request), **values))

    parts: PartCache = request.app.state.parts
    key = (template, visit.base, visit.user, request.url.query)
    return keep_session(request, HTMLResponse(await parts.get(key, make)))


def _name_agents(request: Request) -> dict[str, str]:
    """Return the names of all agents, by id."""
    return {agent.agent_id: agent.name for agent in get_server_state(request).registry}


def state_of(request: Request) -> tuple[Visit, ServerState, RunWatch]:
    """Return the visit, the server's state, and the runs that this server has watched."""
    return read_visit(request), get_server_state(request), request.app.state.watch


async def find_run(request: Request) -> Run | FollowedRun:
    """Return the run in the query: `run` is its id, `of` its user. Raises `UnknownRun`, also for a user not shown."""
    visit, state, _ = state_of(request)
    user_id = request.query_params.get("of") or None
    if not visit.can_see(user_id):
        raise UnknownRun("there is no such run of this user")
    return await state.runs.find(request.query_params.get("run") or "", user_id)


def is_part_request(request: Request) -> bool:
    """Return whether the page itself asks for its live part."""
    return "HX-Request" in request.headers


def redirect(address: str) -> Response:
    """Return a redirect to a page, after a form was posted."""
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)


def find_server_url(request: Request) -> str:
    """Return the URL of the server's API, as this browser reaches it."""
    return str(request.base_url).removesuffix("/").removesuffix(read_visit(request).base)


def read_number(request: Request, name: str) -> int:
    """Return a number of the query, by default 0. Raises `RequestError` if it is not a number."""
    given = request.query_params.get(name, "0")
    if not (given.isascii() and given.isdigit() and len(given) < 9):
        raise RequestError(f"{name} must be a number")
    return int(given)


def download(content: str | AsyncIterator[str], name: str, media_type: str, *, is_shown: bool = False) -> Response:
    """Return a text, or its pieces, as a download; if `is_shown`, as plain text that the browser shows."""
    headers = {
        "Content-Disposition": f'{"inline" if is_shown else "attachment"}; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    if isinstance(content, str):
        return PlainTextResponse(content, media_type=media_type, headers=headers)
    return StreamingResponse(content, media_type=media_type, headers=headers)
