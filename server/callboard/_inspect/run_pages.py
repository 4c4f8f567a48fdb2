"""The pages of a run with its timeline, of a call, and of a request to a model."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from callboard._inspect.messages import mark_messages
from callboard._inspect.page import (
    THREADS,
    find_run,
    is_part_request,
    is_running_here,
    read_number,
    read_state,
    show,
    show_part,
)
from callboard._inspect.shown import ShownCall, ShownRun, read_stored_call, show_stored
from callboard._inspect.timeline import draw_timeline
from callboard._inspect.values import is_picture, read_arguments, read_value, web_address
from callboard._inspect.watch import WatchedRun
from callboard.calls import EndedCall
from callboard.errors import UnknownChat, UnknownRun, UnknownToolCall
from callboard.http import ServerState
from callboard.models import ChatDict
from callboard.storage.sql.overview import Overview
from callboard.storage.summaries import ResultSize, TurnSummary

CALLS_PER_PAGE = 200


async def run(request: Request) -> Response:
    """Show a run: its timeline and its text."""
    if is_part_request(request):
        return await show_part(request, "run_live.html", partial(_find_timeline, request))
    return show(request, "run.html", **await _find_timeline(request))


async def _find_timeline(request: Request) -> dict[str, Any]:
    shown = await _find_run(request)
    at = time.time()
    return {"title": shown.title or f"Run {shown.run_id}", "run": shown, "timeline": draw_timeline(shown, at), "at": at}


async def sent(request: Request) -> Response:
    """Show a request to a model: its messages with their marks, its tools and its options."""
    _, state, _ = read_state(request)
    _, run_id = _read_ids(request)
    watched = _find_watched(request, run_id)
    index = read_number(request, "request")
    if watched is None or index >= len(watched.requests):
        raise UnknownRun(
            "this request is no longer available: each server keeps the requests of its newest runs in memory only"
        )
    asked = watched.requests[index]
    is_sent = asked.messages is not None
    # Redacted here, because the prompt of an agent has not been redacted yet.
    shown_messages = await watched.redaction.large(list(watched.given if asked.messages is None else asked.messages))
    left_out = await watched.redaction.large(list(watched.left_out))
    overview = state.store.overview(watched.run.user_id)
    results = await _find_results(overview, watched.run.chat_id, [*shown_messages, *left_out])
    return show(
        request,
        "sent.html",
        title=f"Request {index + 1}",
        run=watched.show(),
        index=index,
        asked=asked,
        messages=mark_messages(shown_messages, results, run_id, asked.shared if is_sent else 0),
        is_sent=is_sent,
        left_out=mark_messages(left_out, results, run_id, 0),
        left_out_count=watched.left_out_count,
        tools=watched.redaction.value(list(asked.offered)),
        options=watched.redaction.value(dict(asked.options)),
    )


async def _find_results(
    overview: Overview, chat_id: str | None, messages: Sequence[ChatDict]
) -> Mapping[str, ResultSize]:
    """Return the sizes of the stored results of the messages."""
    try:
        known = {str(message["tool_call_id"]) for message in messages if message.get("tool_call_id")}
        return await overview.results(chat_id, known) if chat_id else {}
    except UnknownChat:
        # The chat was deleted, or is not stored.
        return {}


async def call(request: Request) -> Response:
    """Show a call: its arguments, its result, its files and its steps."""
    chat_id, _ = _read_ids(request)
    shown, run_id = await _find_call(request)
    watched = _find_watched(request, run_id)
    files = _list_files(watched, shown.id) if watched else []
    asked = [one for one in watched.requests if one.asked_at <= shown.started_at] if watched else []
    result = None
    if shown.result_text is not None:
        result = await THREADS.run(partial(read_value, shown.result_text))
    return show(
        request,
        "call.html",
        title=shown.name,
        call=shown,
        chat_id=chat_id,
        run_id=run_id,
        arguments=await THREADS.run(partial(read_arguments, shown.arguments_text)),
        arguments_json=await THREADS.run(partial(read_value, shown.arguments_text)),
        result=result,
        files=files,
        asked=asked[-1] if asked else None,
        at=time.time(),
    )


async def result_text(request: Request) -> Response:
    """Return the whole result of a call as plain text."""
    shown, _ = await _find_call(request)
    headers = {
        "Content-Disposition": 'inline; filename="result.txt"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return PlainTextResponse(shown.result_text or "", headers=headers)


async def file(request: Request) -> Response:
    """Return a file of a tool. The browser shows a picture, and downloads any other file."""
    found = await (await find_run(request)).file(request.query_params.get("file", ""))
    is_shown = found.content_type in ("image/png", "image/jpeg", "image/gif", "image/webp")
    headers = {"Content-Disposition": "inline" if is_shown else "attachment"}
    return Response(found.content, media_type=found.content_type, headers=headers)


async def _find_run(request: Request) -> ShownRun:
    """Return a run with one page of its calls. Raises `UnknownRun` or `UnknownChat`."""
    visit, state, _ = read_state(request)
    overview = state.store.overview(visit.user_filter)
    chat_id, run_id = _read_ids(request)
    watched = _find_watched(request, run_id)
    if watched and watched.ended_at is None and not is_running_here(state, watched):
        watched = None
    turn: TurnSummary | None = None
    stored_in = chat_id or (watched.run.chat_id if watched else None)
    if stored_in:
        try:
            turn = await overview.turn(stored_in, run_id)
        except UnknownChat:
            if watched is None:
                raise
    if watched:
        shown = watched.show(turn.question if turn else "")
        if shown.is_continued and turn:
            shown = await _add_stored(shown, turn, overview)
        return _cut_to_page(shown, request)
    if turn is None:
        raise UnknownRun("there is no such run, or it is not stored: runs without a chat are only in memory")
    cursor = request.query_params.get("cursor")
    page = await overview.calls_of_turn(turn.chat_id, run_id, CALLS_PER_PAGE, cursor)
    is_live = await _is_running(state, run_id, turn.user_id)
    return show_stored(turn, page.items, page.next_cursor, is_live=is_live)


async def _add_stored(run: ShownRun, turn: TurnSummary, overview: Overview) -> ShownRun:
    """Return a continued run with its stored calls and texts, also those from before this server watched it."""
    calls: dict[str, ShownCall] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = await overview.calls_of_turn(turn.chat_id, turn.run_id, CALLS_PER_PAGE, cursor or None)
        calls |= {one.call.tool_call_id: read_stored_call(one.call) for one in page.items}
        cursor = page.next_cursor
    calls |= {call.id: call for call in run.calls}
    return replace(
        run,
        state="waiting" if run.is_live and turn.waiting else run.state,
        began_at=turn.began_at,
        texts={**turn.texts, **run.texts},
        calls=tuple(calls.values()),
        call_count=len(calls),
        error_count=sum(call.is_failed for call in calls.values()),
    )


def _find_watched(request: Request, run_id: str) -> WatchedRun | None:
    """Return a watched run; None if it is unknown, the visit may not see its user, or the query names another chat."""
    visit, _, watch = read_state(request)
    chat_id, _ = _read_ids(request)
    watched = watch.find(run_id)
    if watched is None or not visit.can_see(watched.run.user_id):
        return None
    return watched if chat_id in (None, watched.run.chat_id) else None


def _cut_to_page(run: ShownRun, request: Request) -> ShownRun:
    """Return a run with one page of its calls: by default the first page, or the last page of a live run."""
    if len(run.calls) <= CALLS_PER_PAGE:
        return run
    newest = (len(run.calls) - 1) // CALLS_PER_PAGE
    page = newest if run.is_live else 0
    if "cursor" in request.query_params:
        page = read_number(request, "cursor")
    calls = run.calls[page * CALLS_PER_PAGE : (page + 1) * CALLS_PER_PAGE]
    next_page = None
    if page < newest:
        next_page = str(page + 1)
    elif run.is_live and page:
        next_page = "0"
    return replace(run, calls=calls, next_cursor=next_page)


async def _is_running(state: ServerState, run_id: str, user_id: str | None) -> bool:
    try:
        return not (await state.runs.find(run_id, user_id)).ended
    except UnknownRun:
        return False


async def _find_call(request: Request) -> tuple[ShownCall, str]:
    """Return a call and the id of its run. Raises `UnknownToolCall` or `UnknownChat`."""
    visit, state, _ = read_state(request)
    chat_id, run_id = _read_ids(request)
    watched = _find_watched(request, run_id)
    call_id = request.query_params.get("id", "")
    if chat_id:
        try:
            stored = await state.store.chats(visit.user_filter).tool_call(chat_id, call_id)
            # The run in the URL may be wrong.
            return read_stored_call(stored), stored.run_id
        except (UnknownChat, UnknownToolCall):
            if watched is None:
                raise
    if watched and (found := watched.calls.get(call_id)):
        return found, run_id
    raise UnknownToolCall("there is no such call, or it is not stored")


def _list_files(watched: WatchedRun, call_id: str) -> list[dict[str, Any]]:
    """Return the files of a call, each with the URLs at which a browser can get it."""
    found = watched.calls.get(call_id)
    listed = []
    for one in found.files if isinstance(found, EndedCall) else ():
        url = one.get("url")
        path = f"/v1/runs/{watched.run.run_id}/files/"
        listed.append(
            {
                "name": str(one.get("name") or one.get("type") or "file"),
                "is_image": one.get("type") == "image",
                "picture": url if is_picture(url) else None,
                "kept": url.removeprefix(path) if isinstance(url, str) and url.startswith(path) else None,
                "of": watched.run.user_id,
                "web": web_address(url),
            }
        )
    return listed


def _read_ids(request: Request) -> tuple[str | None, str]:
    """Return the ids of the chat and the run that the query names."""
    query = request.query_params
    return query.get("chat") or None, query.get("run") or query.get("id") or ""


ROUTES = [
    Route("/run", run),
    Route("/sent", sent),
    Route("/call", call),
    Route("/result", result_text),
    Route("/file", file),
]
