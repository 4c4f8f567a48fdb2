"""The pages about stored data: chats, one chat, and calls."""

from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._inspect.page import is_running_here, read_state, redirect, show
from callboard._inspect.shown import show_stored
from callboard.errors import RequestError
from callboard.storage.values import SECONDS_A_DAY, CallState, ToolCallFilter

CHATS_PER_PAGE = 50
TURNS_PER_PAGE = 25
CALLS_PER_PAGE = 50
CALL_STATES: tuple[CallState, ...] = get_args(CallState)
MAX_TEXT_CHARS = 200


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

    def to_call_filter(self) -> ToolCallFilter:
        """Return the filter for calls. Raises `RequestError` for an invalid day or status."""
        until = _read_day(self.until)
        return ToolCallFilter(
            tool_name=self.tool or None,
            status=_read_status(self.status),
            agent_id=self.agent or None,
            since=_read_day(self.since),
            until=None if until is None else until + SECONDS_A_DAY,
            text=self.text,
        )


async def chats(request: Request) -> Response:
    """Show the stored chats with these words. The chat with the newest answer comes first."""
    visit, state, _ = read_state(request)
    text = request.query_params.get("text", "").strip()[:MAX_TEXT_CHARS]
    cursor = request.query_params.get("cursor") or None
    page = await state.store.overview(visit.user_filter).chats(text, CHATS_PER_PAGE, cursor)
    older = visit.link("chats", text=text, cursor=page.next_cursor) if page.next_cursor else None
    return show(request, "chats.html", title="Chats", chats=page.items, text=text, older=older)


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
    grants = await state.runs.grants(found.user_id, chat_id).list() if found.user_id else ()
    return show(request, "chat.html", title=title, chat=found, runs=runs, older=older, grants=grants)


async def revoke(request: Request) -> Response:
    """Revoke a grant: the user is asked again before the tool runs in this chat."""
    visit, state, _ = read_state(request)
    chat_id = visit.form.get("chat", "")
    found = await state.store.overview(visit.user_filter).chat(chat_id)
    visit.check_may_act_for(found.user_id)
    if found.user_id:
        grants = state.runs.grants(found.user_id, chat_id)
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
    page = await state.store.overview(visit.user_filter).calls(wanted.to_call_filter(), CALLS_PER_PAGE, cursor)
    agents = {agent.agent_id: agent.name for agent in state.registry}
    if wanted.agent:
        agents.setdefault(wanted.agent, wanted.agent)
    return show(
        request,
        "calls.html",
        title="Calls",
        wanted=wanted,
        calls=page.items,
        older=visit.link("calls", **asdict(wanted), cursor=page.next_cursor) if page.next_cursor else None,
        agents=agents,
        call_states=CALL_STATES,
    )


def _read_status(text: str) -> CallState | None:
    if not text:
        return None
    if text not in CALL_STATES:
        raise RequestError(f"status must be one of {', '.join(CALL_STATES)}")
    return text


def _read_day(text: str) -> float | None:
    """Return the start of a day as seconds since the epoch."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() if text else None
    except ValueError:
        raise RequestError("a time must be a day, such as 2026-01-31") from None


ROUTES = [
    Route("/chats", chats),
    Route("/chat", chat),
    Route("/forget", forget, methods=["POST"]),
    Route("/revoke", revoke, methods=["POST"]),
    Route("/calls", calls),
]
