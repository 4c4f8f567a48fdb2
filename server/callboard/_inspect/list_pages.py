"""The pages about stored data: chats, one chat, calls, and statistics of tools."""

import re
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._inspect.page import is_running_here, read_state, redirect, show
from callboard._inspect.shown import show_stored
from callboard.errors import RequestError
from callboard.runs.grants import Grants
from callboard.storage.values import CallState, ToolCallFilter

CHATS_PER_PAGE = 50
TURNS_PER_PAGE = 25
CALLS_PER_PAGE = 50
SLOWEST_CALLS = 10
CALL_STATES: tuple[CallState, ...] = get_args(CallState)
MAX_TEXT_CHARS = 200

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2})?")
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class FilterForm:
    """The values of the filter form."""

    text: str = ""
    tool: str = ""
    status: str = ""
    agent: str = ""
    since: str = ""
    until: str = ""

    @classmethod
    def read(cls, request: Request) -> "FilterForm":
        """Return the values in the query of the request."""
        query = request.query_params
        return cls(*(query.get(field.name, "").strip()[:MAX_TEXT_CHARS] for field in fields(cls)))

    def to_filter(self) -> ToolCallFilter:
        """Return the filter for calls or chats. Raises `RequestError` for an invalid time or status."""
        return ToolCallFilter(
            tool_name=self.tool or None,
            status=_read_status(self.status),
            agent_id=self.agent or None,
            since=_read_time(self.since),
            until=_read_time(self.until, is_end=True),
            text=self.text,
        )


async def chats(request: Request) -> Response:
    """Show the stored chats that match the filters. The chat with the newest answer comes first."""
    visit, state, _ = read_state(request)
    wanted = FilterForm.read(request)
    cursor = request.query_params.get("cursor") or None
    page = await state.store.overview(visit.user_filter).chats(wanted.to_filter(), CHATS_PER_PAGE, cursor)
    return show_list(request, "chats", wanted, page.next_cursor, chats=page.items, is_narrowed=wanted != FilterForm())


async def chat(request: Request) -> Response:
    """Show a chat with its turns, newest first, including running turns."""
    visit, state, watch = read_state(request)
    chat_id = request.query_params.get("id", "")
    cursor = request.query_params.get("cursor") or None
    overview = state.store.overview(visit.user_filter)
    found = await overview.chat(chat_id)
    page = await overview.turns(chat_id, TURNS_PER_PAGE, cursor)
    live = {one.run.run_id: one for one in watch if one.run.chat_id == chat_id and is_running_here(state, one)}
    runs = [
        one.show(turn.question) if (one := live.get(turn.run_id)) else show_stored(turn, turn.failures)
        for turn in page.items
    ]
    older = visit.link("chat", id=chat_id, cursor=page.next_cursor) if page.next_cursor else None
    title = found.began_with or f"Chat {chat_id}"
    grants = await Grants(state.store, found.user_id, chat_id).list() if found.user_id else ()
    return show(request, "chat.html", title=title, chat=found, runs=runs, older=older, grants=grants)


async def revoke(request: Request) -> Response:
    """Revoke a grant: the user is asked again before the tool runs in this chat."""
    visit, state, _ = read_state(request)
    chat_id = visit.form.get("chat", "")
    found = await state.store.overview(visit.user_filter).chat(chat_id)
    visit.check_may_act_for(found.user_id)
    if found.user_id:
        grants = Grants(state.store, found.user_id, chat_id)
        await grants.revoke(visit.form.get("agent", ""), visit.form.get("tool", ""))
    return redirect(visit.link("chat", id=chat_id))


async def forget(request: Request) -> Response:
    """Delete a chat and all its calls. Raises `UnknownChat`."""
    visit, state, watch = read_state(request)
    chat_id = visit.form.get("chat", "")
    if visit.form.get("sure") != "yes":
        raise RequestError("forgetting a chat cannot be undone: tick 'I am sure'")
    visit.check_may_act_for((await state.store.overview(visit.user_filter).chat(chat_id)).user_id)
    try:
        await state.store.chats(visit.user_filter).delete(chat_id)
    finally:
        watch.forget_chat(chat_id)
    return redirect(visit.link("chats"))


async def calls(request: Request) -> Response:
    """Show the calls that match the filters, newest first."""
    visit, state, _ = read_state(request)
    wanted = FilterForm.read(request)
    cursor = request.query_params.get("cursor") or None
    page = await state.store.overview(visit.user_filter).calls(wanted.to_filter(), CALLS_PER_PAGE, cursor)
    return show_list(request, "calls", wanted, page.next_cursor, calls=page.items)


async def tools(request: Request) -> Response:
    """Show statistics of the calls of each tool."""
    visit, state, _ = read_state(request)
    wanted = FilterForm.read(request)
    overview = state.store.overview(visit.user_filter)
    found = await overview.tools(wanted.to_filter())
    slowest = await overview.slowest_calls(wanted.to_filter(), SLOWEST_CALLS)
    return show_list(request, "tools", wanted, tools=found, slowest=slowest)


def show_list(
    request: Request, step: str, wanted: FilterForm, next_cursor: str | None = None, **shown: object
) -> Response:
    """Show a list with its filter form. `step` is the path of the page, without a slash."""
    visit, state, _ = read_state(request)
    agents = {agent.agent_id: agent.name for agent in state.registry}
    if wanted.agent:
        agents.setdefault(wanted.agent, wanted.agent)
    return show(
        request,
        f"{step}.html",
        title=step.capitalize(),
        step=step,
        wanted=wanted,
        kept={name: value for name, value in asdict(wanted).items() if name not in ("text", "tool", "status")},
        older=visit.link(step, **asdict(wanted), cursor=next_cursor) if next_cursor else None,
        agents=agents,
        call_states=CALL_STATES,
        **shown,
    )


def _read_status(text: str) -> CallState | None:
    if not text:
        return None
    if text not in CALL_STATES:
        raise RequestError(f"status must be one of {', '.join(CALL_STATES)}")
    return text


def _read_time(text: str, *, is_end: bool = False) -> float | None:
    """Return a day or a minute as seconds since the epoch. For an end (`is_end`), return the end of the day."""
    if not text:
        return None
    if not _DAY.fullmatch(text):
        raise RequestError("a time must be a day, such as 2026-01-31, or a minute, such as 2026-01-31T15:00")
    try:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise RequestError(f"there is no such time as {text}") from None
    return at + DAY_SECONDS if is_end and "T" not in text else at


ROUTES = [
    Route("/chats", chats),
    Route("/chat", chat),
    Route("/forget", forget, methods=["POST"]),
    Route("/revoke", revoke, methods=["POST"]),
    Route("/calls", calls),
    Route("/tools", tools),
]
