"""The conversation that a run goes on with: what the client sent, and what the store knows beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import structlog

from callboard._history import ChatHistory, NewResponse, lacks_calls, restore_calls
from callboard.calls import ToolCall
from callboard.errors import RequestError, StorageError, UnknownChat
from callboard.models import ChatDict, content_text
from callboard.storage import OWN_CHAT_PREFIX, Store
from callboard_protocol import EXTERNAL_ID_PREFIX, RunRequest

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Continuation:
    """The way in which a request refers to what was before it: by the id of a response's run, or not.

    `is_kept`: later requests may refer to this one by the id of its run. `has_instructions`: the first
    message is not part of the conversation that they go on with. A request that comes without one of
    these tells of all its calls itself, but for those beside calls of its own functions.
    """

    previous: str | None = None
    is_kept: bool = False
    has_instructions: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """`request` in the chat that it belongs to; `messages` with the calls that the client did not tell of.

    `results` are what the client's own functions returned, by the ids of their calls. `is_asked`: the question is
    stored already. `can_ask`: the client shows the run's questions to somebody. Of a turn that goes on `calls_made` are
    the tools of the calls that have ended, `unfinished` the calls that are to be run again.
    """

    request: RunRequest
    messages: Sequence[ChatDict]
    history: ChatHistory = field(default_factory=ChatHistory)
    results: Mapping[str, str] = field(default_factory=dict)
    response: NewResponse | None = None
    is_asked: bool = False
    can_ask: bool = True
    calls_made: Sequence[str] = ()
    unfinished: Sequence[ToolCall] = ()


async def open_conversation(
    store: Store, request: RunRequest, run_id: str, continuation: Continuation | None
) -> Conversation:
    """Find the chat that a request goes on with, and what is stored of it.

    Where the store cannot be read the run goes on with what the client sent. A chat that is somebody
    else's is continued and not kept. Raises `RequestError` for a response that is not known, and
    for results that answer no call or not all that they should, and for those of another chat;
    `StorageError` where a response is asked for that cannot be read.
    """
    sent = [message.to_openai() for message in request.messages]
    if request.task is not None:
        return Conversation(request, sent)
    going_on = continuation or Continuation()
    before: list[ChatDict] = []
    if going_on.previous is not None:
        past = await store.responses(_user_id(request)).load(going_on.previous)
        if past is None or request.chat_id not in (None, past.chat_id):
            raise RequestError(
                f"previous_response_id: there is no response 'resp_{going_on.previous}' of this user in this chat; "
                "send the whole input instead"
            )
        request = request.model_copy(update={"chat_id": past.chat_id})
        before = past.messages
    results = _collect_trailing_results(sent)
    request = await _find_chat(store, request, sent)
    named = request.chat_id
    request, history = await _load_history(store, request)
    _refuse_strangers(results, history)
    is_strangers = named is not None and request.chat_id is None
    is_kept = going_on.is_kept and not is_strangers
    if request.chat_id is None and (is_kept or request.functions):
        request = request.model_copy(update={"chat_id": f"{OWN_CHAT_PREFIX}{run_id}"})
    instructions = sent[: going_on.has_instructions]
    brought = sent[going_on.has_instructions :]
    by_text = continuation is not None
    told = [*before, *await _add_stored_calls(store, request, history, brought, by_text=by_text)]
    _refuse_gaps(told)
    messages = [*instructions, *told]
    response = NewResponse(going_on.previous, brought) if is_kept else None
    return Conversation(request, messages, history, results, response)


def _user_id(request: RunRequest) -> str | None:
    return request.user.id if request.user else None


def _collect_trailing_results(sent: Sequence[ChatDict]) -> dict[str, str]:
    """Return what this request brings of the client's own functions, by the ids of their calls."""
    last = takewhile(lambda message: message["role"] == "tool", reversed(sent))
    found = {message.get("tool_call_id") or "": content_text(message.get("content")) for message in last}
    return {call_id: text for call_id, text in found.items() if call_id.startswith(EXTERNAL_ID_PREFIX)}


async def _find_chat(store: Store, request: RunRequest, sent: Sequence[ChatDict]) -> RunRequest:
    """Return the request in the chat of the last call that its client has run, if it names no chat itself."""
    ids = (str(message.get("tool_call_id")) for message in reversed(sent))
    call_id = next((one for one in ids if one.startswith(EXTERNAL_ID_PREFIX)), None)
    if request.chat_id is not None or call_id is None:
        return request
    try:
        chat_id = await store.chats(_user_id(request)).chat_of_call(call_id)
    except StorageError as error:
        _log.warning("chat_of_call_not_found", error=str(error))
        return request
    return request.model_copy(update={"chat_id": chat_id})


async def _load_history(store: Store, request: RunRequest) -> tuple[RunRequest, ChatHistory]:
    """Return the request with its chat's history, `is_missing` where that cannot be read."""
    if request.chat_id is None:
        return request, ChatHistory()
    try:
        return request, await store.chats(_user_id(request)).history(request.chat_id)
    except UnknownChat:
        _log.info("chat_of_another_user", chat_id=request.chat_id)
        return request.model_copy(update={"chat_id": None}), ChatHistory()
    except StorageError as error:
        _log.warning("history_not_loaded", chat_id=request.chat_id, error=str(error))
        return request, ChatHistory(is_missing=True)


def _refuse_strangers(results: Mapping[str, str], history: ChatHistory) -> None:
    """Raise `RequestError` for results of calls that this chat does not know."""
    if history.is_missing:
        return
    if strangers := [call_id for call_id in results if call_id not in history.tool_call_ids]:
        raise RequestError(
            f"tool_call_id {', '.join(strangers)}: no such call waits for its result in this chat and for this user; "
            "send the ids as they came, with the same chat and user, or ask anew without these messages"
        )


async def _add_stored_calls(
    store: Store, request: RunRequest, history: ChatHistory, sent: list[ChatDict], *, by_text: bool
) -> list[ChatDict]:
    if request.chat_id is None or not history.calls or not lacks_calls(sent, by_text=by_text):
        return sent
    try:
        return restore_calls(sent, await store.chats(_user_id(request)).turns(request.chat_id), by_text=by_text)
    except StorageError as error:
        _log.warning("turns_not_loaded", chat_id=request.chat_id, error=str(error))
        return sent


def _refuse_gaps(messages: Sequence[ChatDict]) -> None:
    """Raise `RequestError` unless the results at the end answer the calls before them, each of the client's own."""
    results = list(takewhile(lambda message: message["role"] == "tool", reversed(messages)))
    answered = {message.get("tool_call_id") or "" for message in results}
    asking = messages[-len(results) - 1] if len(results) < len(messages) else {}
    calls = [call.get("id") or "" for call in asking.get("tool_calls") or ()]
    if stray := answered.difference(calls):
        raise RequestError(
            f"tool_call_id {', '.join(sorted(stray))}: the message before these results holds no such call; send the "
            "assistant's message with its tool_calls, then a result for each"
        )
    if missing := [one for one in calls if one.startswith(EXTERNAL_ID_PREFIX) and one not in answered]:
        raise RequestError(f"tool_call_id {', '.join(missing)}: the result is missing; send one for each call")
