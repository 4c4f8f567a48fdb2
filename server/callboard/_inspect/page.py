"""What every page works with."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from callboard._http.state import ServerState, server_state
from callboard._inspect.door import keep_session
from callboard._inspect.rendering import render, write
from callboard._inspect.sharing import Shared
from callboard._inspect.visit import Visit, read_visit
from callboard._inspect.watch import RunWatch
from callboard._threads import Threads
from callboard.errors import RequestError

READING = Threads("inspecting", 2)


def show(request: Request, template: str, **values: object) -> Response:
    """Return a page for this visit."""
    page = render(template, read_visit(request), HTTPStatus.OK, names=_name_agents(request), **values)
    return keep_session(request, page)


async def show_part(request: Request, template: str, find: Callable[[], Awaitable[Mapping[str, object]]]) -> Response:
    """Return the living part of a page, the same for all who look at it; `find` returns what it says."""
    visit = read_visit(request)
    # No form of somebody's own is in it.
    everybodys = replace(visit, session=None, form={})

    async def make() -> str:
        values = await find()
        # In a thread: a hundred rows take some ten milliseconds, each second while somebody looks.
        return await READING.run(partial(write, template, everybodys, names=_name_agents(request), **values))

    shared: Shared = request.app.state.shared
    key = (template, visit.base, visit.user, request.url.query)
    return keep_session(request, HTMLResponse(await shared.get(key, make)))


def _name_agents(request: Request) -> dict[str, str]:
    """Return the names of the agents that there are, by their ids."""
    return {agent.agent_id: agent.name for agent in server_state(request).registry}


def state_of(request: Request) -> tuple[Visit, ServerState, RunWatch]:
    """Return who looks, the server, and what was seen of its runs."""
    return read_visit(request), server_state(request), request.app.state.watch


def is_fragment(request: Request) -> bool:
    """Return whether a part of a page is asked for, by the page itself."""
    return "HX-Request" in request.headers


def go_to(address: str) -> Response:
    """Redirect to a page after a form was posted."""
    return RedirectResponse(address, HTTPStatus.SEE_OTHER)


def find_address(request: Request) -> str:
    """Return the address of the server's API as this browser reaches it."""
    return str(request.base_url).removesuffix("/").removesuffix(read_visit(request).base)


def read_number(request: Request, name: str) -> int:
    """Return a number of the query, 0 where there is none; raises `RequestError`."""
    given = request.query_params.get(name, "0")
    if not (given.isascii() and given.isdigit() and len(given) < 9):
        raise RequestError(f"{name} is to be a number")
    return int(given)


def give(content: str | AsyncIterator[str], name: str, media_type: str, *, is_shown: bool = False) -> Response:
    """Return a text, or pieces of it, as a download; with `is_shown` to be displayed as plain text."""
    headers = {
        "Content-Disposition": f'{"inline" if is_shown else "attachment"}; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    if isinstance(content, str):
        return PlainTextResponse(content, media_type=media_type, headers=headers)
    return StreamingResponse(content, media_type=media_type, headers=headers)
