"""The pages of a run with its timeline, of a call, and of a request to a model."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._inspect.messages import mark_messages
from callboard._inspect.page import (
    THREADS,
    download,
    find_run,
    is_part_request,
    is_running_here,
    read_number,
    read_state,
    show,
    show_part,
)
from callboard._inspect.shown import (
    ShownCall,
    ShownRun,
    read_stored_call,
    show_stored,
)
from callboard._inspect.timeline import draw_timeline
from callboard._inspect.values import is_picture, read_value, web_address
from callboard._inspect.watch import WatchedRun
from callboard.calls import EndedCall
from callboard.errors import UnknownChat, UnknownRun, UnknownToolCall
from callboard.http import ServerState
from callboard.models import ChatDict
from callboard.storage.sql.overview import Overview
from callboard.storage.summaries import CallSummary, ResultSize, TurnSummary
from callboard.storage.values import StoredCall, StoredMessage, ToolCallFilter
from callboard.text import write_json_line

CALLS_PER_PAGE = 200
UNSENT_SHOWN = 50


async def run(request: Request) -> Response:
    """Show a run: its timeline and its text."""
    if is_part_request(request):
        return await show_part(request, "run_live.html", partial(_find_timeline, request))
    return show(request, "run.html", **await _find_timeline(request))


async def _find_timeline(request: Request) -> dict[str, Any]:
    shown = await _find_run(request)
    at = time.time()
    return {"title": shown.title or f"Run {shown.run_id}", "run": shown, "timeline": draw_timeline(shown, at), "at": at}


async def run_lines(request: Request) -> Response:
    """Return the messages and calls of a stored run as JSON Lines."""
    visit, state, _ = read_state(request)
    chat_id, run_id = _read_ids(request)
    if not chat_id or await state.store.overview(visit.user_filter).turn(chat_id, run_id) is None:
        raise UnknownRun("there is no such run, or it is not stored")
    pages = state.store.chats(visit.user_filter).message_pages(chat_id)
    return download(_write_rows(run_id, pages), "run.jsonl", "application/x-ndjson")


async def _write_rows(run_id: str, pages: AsyncIterator[Sequence[StoredMessage]]) -> AsyncIterator[str]:
    """Yield each row of a run as a line of JSON. The rows together may not fit into memory."""
    async for page in pages:
        for row in page:
            if row.run_id == run_id:
                yield await THREADS.run(partial(write_json_line, asdict(row)))


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
    results, unsent, unsent_count = await _compare_with_store(
        state.store.overview(watched.run.user_id), watched, [*shown_messages, *left_out]
    )
    shown = watched.show()
    return show(
        request,
        "sent.html",
        title=f"Request {index + 1}",
        run=shown,
        index=index,
        asked=asked,
        messages=mark_messages(shown_messages, results, run_id, asked.shared if is_sent else 0),
        is_sent=is_sent,
        left_out=mark_messages(left_out, results, run_id, 0),
        left_out_count=watched.left_out_count,
        unsent=unsent,
        unsent_count=unsent_count,
        tools=watched.redaction.value(list(asked.offered)),
        options=watched.redaction.value(dict(asked.options)),
    )


async def _compare_with_store(
    overview: Overview, watched: WatchedRun, messages: Sequence[ChatDict]
) -> tuple[Mapping[str, ResultSize], Sequence[CallSummary], int]:
    """Return the stored results of the messages, and the earlier calls of the chat that are not in the messages.

    Only the newest of these calls are returned, and the number of all of them.
    """
    chat_id = watched.run.chat_id
    if chat_id is None:
        return {}, (), 0
    known = {str(message["tool_call_id"]) for message in messages if message.get("tool_call_id")}
    unsent: list[CallSummary] = []
    try:
        results = await overview.results(chat_id, known)
        earlier = await overview.count_calls(chat_id, watched.began_at)
        unsent_count = max(0, earlier - sum(kept.run_id != watched.run.run_id for kept in results.values()))
        cursor: str | None = None
        while len(unsent) < min(unsent_count, UNSENT_SHOWN):
            page = await overview.calls(ToolCallFilter(chat_id, until=watched.began_at), CALLS_PER_PAGE, cursor)
            unsent += [one for one in page.items if one.call.tool_call_id not in known]
            cursor = page.next_cursor
            if cursor is None:
                break
    except UnknownChat:
        # The chat was deleted, or is not stored.
        return {}, (), 0
    return results, unsent[:UNSENT_SHOWN], unsent_count


async def call(request: Request) -> Response:
    """Show a call: its arguments, its result, its files and its steps."""
    chat_id, run_id = _read_ids(request)
    shown, stored = await _find_call(request)
    if stored is not None:
        # The run in the URL may be wrong.
        run_id = stored.run_id
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
        arguments=await THREADS.run(partial(read_value, shown.arguments_text)),
        result=result,
        files=files,
        asked=asked[-1] if asked else None,
        is_stored=stored is not None,
        at=time.time(),
    )


async def result_text(request: Request) -> Response:
    """Return the whole result of a call as plain text."""
    shown, _ = await _find_call(request)
    return download(shown.result_text or "", "result.txt", "text/plain; charset=utf-8", is_shown=True)


async def call_lines(request: Request) -> Response:
    """Return a stored call as a line of JSON."""
    _, stored = await _find_call(request)
    if stored is None:
        raise UnknownToolCall("this call is not stored")
    line = await THREADS.run(partial(write_json_line, asdict(stored)))
    return download(line, "call.jsonl", "application/x-ndjson")


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
        return _cut_to_page(watched.show(turn.question if turn else ""), request)
    if turn is None:
        raise UnknownRun("there is no such run, or it is not stored: runs without a chat are only in memory")
    cursor = request.query_params.get("cursor")
    page = await overview.calls_of_turn(turn.chat_id, run_id, CALLS_PER_PAGE, cursor)
    is_live = await _is_running(state, run_id, turn.user_id)
    return show_stored(turn, page.items, page.next_cursor, is_live=is_live)


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


async def _find_call(request: Request) -> tuple[ShownCall, StoredCall | None]:
    """Return a call, and its stored form if it is stored. Raises `UnknownToolCall` or `UnknownChat`."""
    visit, state, _ = read_state(request)
    chat_id, run_id = _read_ids(request)
    watched = _find_watched(request, run_id)
    call_id = request.query_params.get("id", "")
    if chat_id:
        try:
            stored = await state.store.chats(visit.user_filter).tool_call(chat_id, call_id)
            return read_stored_call(stored), stored
        except (UnknownChat, UnknownToolCall):
            if watched is None:
                raise
    if watched and (found := watched.calls.get(call_id)):
        return found, None
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
    Route("/run.jsonl", run_lines),
    Route("/sent", sent),
    Route("/call", call),
    Route("/call.jsonl", call_lines),
    Route("/result", result_text),
    Route("/file", file),
]
