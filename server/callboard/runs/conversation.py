"""The request of a run: its conversation, from the client's messages and the stored chat, and its stored form.

The stored form lets another server continue the run.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import structlog
from pydantic import Field
from pydantic_core import to_json

from callboard._history import ChatHistory, NewResponse, insert_turns_by_client_call, insert_turns_by_text, lacks_calls
from callboard._history.turns import CLIENT_PREFIXES, join_responses
from callboard._trace_context import headers_of, join
from callboard.calls import ToolCall
from callboard.errors import RequestError, StorageError, UnknownChat
from callboard.models import ChatDict
from callboard.models.messages import content_text
from callboard.storage import Store
from callboard.storage.sql.chats import Chats
from callboard.storage.values import OWN_CHAT_PREFIX, PastResponse
from callboard_protocol import RunRequest
from callboard_protocol.events import EXTERNAL_ID_PREFIX, FORM_ID_PREFIX

_log = structlog.get_logger(__name__)

NO_RESULT = "No result of this call arrived from the client. Whether the call took effect is not known."


@dataclass(frozen=True, slots=True)
class Reference:
    """How a request of the OpenAI routes continues a conversation.

    A request without a `Reference` comes from a client that sends all calls itself, except server calls in a round
    with calls of the client's own functions.

    Attributes:
        previous: The run id of the response that the request continues; None if it names none.
        is_stored: Later requests may continue this one by its run id.
        instruction_count: The number of first messages that hold instructions, which later requests do not inherit.
    """

    previous: str | None = None
    is_stored: bool = False
    instruction_count: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """The input of a run: the request, the messages with all calls, and the history of the chat.

    Attributes:
        request: The request, with the id of the chat that it belongs to.
        messages: The client's messages, with the stored calls that the client did not send.
        results: Results of functions that the client ran, by the ids of their calls.
        can_ask: The client can show the run's questions to its user.
        calls_made: In a continued turn, the tool names of the calls that have ended.
        unfinished: In a continued turn, the calls that will run again.
    """

    request: RunRequest
    messages: Sequence[ChatDict]
    history: ChatHistory = field(default_factory=ChatHistory)
    results: Mapping[str, str] = field(default_factory=dict)
    response: NewResponse | None = None
    can_ask: bool = True
    calls_made: Sequence[str] = ()
    unfinished: Sequence[ToolCall] = ()


async def open_conversation(
    store: Store, request: RunRequest, run_id: str, reference: Reference | None
) -> Conversation:
    """Return the conversation of a request, with the stored history of its chat.

    If the database cannot be read, the conversation has only the client's messages. If the chat belongs to another
    user, the run gets no stored history and is not stored.

    Raises:
        RequestError: The response to continue is unknown, or the results do not match the calls of this chat.
        StorageError: The response to continue cannot be read.
    """
    user_id = request.user.id if request.user else None
    chats = store.chats(user_id)
    sent = [message.to_openai() for message in request.messages]
    # The OpenAI routes pass a reference, and have no event for a question.
    can_ask = reference is None
    if request.task is not None:
        return Conversation(request, sent, can_ask=can_ask)
    refers_to = reference or Reference()
    past: PastResponse | None = None
    if refers_to.previous is not None:
        past = await store.responses(user_id).load(refers_to.previous)
        if past is None or request.chat_id not in (None, past.chat_id):
            raise RequestError(
                f"previous_response_id: there is no response 'resp_{refers_to.previous}' of this user in this chat; "
                "send the whole input instead"
            )
        request = request.model_copy(update={"chat_id": past.chat_id})
    new_messages = _read_form_results(sent[refers_to.instruction_count :], f"{FORM_ID_PREFIX}{refers_to.previous}")
    # Clients of the OpenAI routes may not see calls.
    by_text = reference is not None
    results = _collect_trailing_results(sent)
    request = await _find_chat(chats, request, sent)
    named_chat_id = request.chat_id
    with_turns = past is not None or lacks_calls(new_messages, by_text=by_text)
    request, history = await _load_history(chats, request, with_turns=with_turns, is_needed=past is not None)
    _refuse_unknown_calls(results, history)
    is_other_users_chat = named_chat_id is not None and request.chat_id is None
    is_stored = refers_to.is_stored and not is_other_users_chat
    if request.chat_id is None and (is_stored or request.functions):
        request = request.model_copy(update={"chat_id": f"{OWN_CHAT_PREFIX}{run_id}"})
    instructions = sent[: refers_to.instruction_count]
    before = join_responses(str(refers_to.previous), past.stored, history.turns) if past else []
    with_calls = insert_turns_by_client_call(new_messages, history.turns)
    if by_text:
        with_calls = insert_turns_by_text(with_calls, history.turns)
    messages = [*instructions, *_complete_rounds([*before, *with_calls], history)]
    response = NewResponse(refers_to.previous, new_messages) if is_stored else None
    return Conversation(request, messages, history, results, response, can_ask)


def _collect_trailing_results(sent: Sequence[ChatDict]) -> dict[str, str]:
    """Return the results of the client's own functions at the end of the messages, by the ids of their calls."""
    last = takewhile(lambda message: message["role"] == "tool", reversed(sent))
    found = {message.get("tool_call_id") or "": content_text(message.get("content")) for message in last}
    return {call_id: text for call_id, text in found.items() if call_id.startswith(EXTERNAL_ID_PREFIX)}


def _read_form_results(new_messages: list[ChatDict], form_id: str) -> list[ChatDict]:
    """Return the messages with the result of a form as a user message, unless they have the form's call too.

    The stored answer holds the form as the model wrote it, as text, so there is no call that a result could follow.
    """
    if any(call.get("id") == form_id for message in new_messages for call in message.get("tool_calls") or ()):
        return new_messages
    return [
        {"role": "user", "content": message["content"]} if message.get("tool_call_id") == form_id else message
        for message in new_messages
    ]


async def _find_chat(chats: Chats, request: RunRequest, sent: Sequence[ChatDict]) -> RunRequest:
    """Return the request; without a chat, it gets the chat of the last call that the client ran."""
    ids = (str(message.get("tool_call_id")) for message in reversed(sent))
    call_id = next((one for one in ids if one.startswith(EXTERNAL_ID_PREFIX)), None)
    if request.chat_id is not None or call_id is None:
        return request
    try:
        chat_id = await chats.chat_of_call(call_id)
    except StorageError as error:
        _log.warning("chat_of_call_not_found", error=str(error))
        return request
    return request.model_copy(update={"chat_id": chat_id})


async def _load_history(
    chats: Chats, request: RunRequest, *, with_turns: bool, is_needed: bool
) -> tuple[RunRequest, ChatHistory]:
    """Return the request and the history of its chat; if the chat is another user's, the request loses its chat id.

    Raises `StorageError` if the history cannot be read and `is_needed`.
    """
    if request.chat_id is None:
        return request, ChatHistory()
    try:
        return request, await chats.history(request.chat_id, with_turns=with_turns)
    except UnknownChat:
        _log.info("chat_of_another_user", chat_id=request.chat_id)
        return request.model_copy(update={"chat_id": None}), ChatHistory()
    except StorageError as error:
        if is_needed:
            raise
        _log.warning("history_not_loaded", chat_id=request.chat_id, error=str(error))
        return request, ChatHistory(is_missing=True)


def _refuse_unknown_calls(results: Mapping[str, str], history: ChatHistory) -> None:
    """Raise `RequestError` for results of calls that are not in this chat."""
    if history.is_missing:
        return
    if unknown := [call_id for call_id in results if call_id not in history.tool_call_ids]:
        raise RequestError(
            f"tool_call_id {', '.join(unknown)}: no such call waits for its result in this chat and for this user; "
            "send the ids as they came, with the same chat and user, or ask anew without these messages. Without a "
            "chat id, results are accepted until the answer that follows them"
        )


def _complete_rounds(messages: Sequence[ChatDict], history: ChatHistory) -> list[ChatDict]:
    """Return the messages with a result for each call of the client's functions.

    A client whose user has interrupted it sends a call and then the next question, without a result:
    https://github.com/charmbracelet/crush/issues/920

    Raises:
        RequestError: A call at the end has no result, or a result has no call. Before the end, results with ids of
            other servers are not checked: clients that cut long chats send such results, and `replay` drops them.
    """
    stored = {call.tool_call_id for call in history.calls if call.result is not None}
    whole: list[ChatDict] = []
    calls: set[str] = set()
    missing: set[str] = set()
    stray: set[str] = set()
    stray_of_clients: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            call_id = message.get("tool_call_id") or ""
            missing.discard(call_id)
            if call_id not in calls:
                (stray_of_clients if call_id.startswith(CLIENT_PREFIXES) else stray).add(call_id)
        else:
            lost = sorted(missing - stored)
            whole += ({"role": "tool", "tool_call_id": call_id, "content": NO_RESULT} for call_id in lost)
            calls = {call.get("id") or "" for call in message.get("tool_calls") or ()}
            missing = {call_id for call_id in calls if call_id.startswith(CLIENT_PREFIXES)}
            stray.clear()
        whole.append(message)
    if stray := stray | stray_of_clients:
        raise RequestError(
            f"tool_call_id {', '.join(sorted(stray))}: the message before these results holds no such call; send the "
            "assistant's message with its tool_calls, then a result for each"
        )
    if missing:
        raise RequestError(f"tool_call_id {', '.join(sorted(missing))}: the result is missing; send one for each call")
    return whole


MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""The largest packed request that is stored; runs with larger requests cannot be continued."""

LOGGED_FIELDS = ("request_id", "key")
"""The fields in every log line of a request and of its run."""


class StoredRequest(RunRequest):
    """A stored request. `origin` identifies it in logs and traces.

    `origin` has the request's id, the name of its API key, and its trace headers.
    """

    origin: dict[str, str] = Field(default_factory=dict)


def find_origin() -> dict[str, str]:
    """Return the origin of the current task's request."""
    stored = structlog.contextvars.get_contextvars()
    return headers_of() | {name: stored[name] for name in LOGGED_FIELDS if stored.get(name)}


def enter_origin(origin: Mapping[str, str]) -> None:
    """Bind the current task, and the tasks that it starts, to the logs and the trace of the origin's request."""
    structlog.contextvars.bind_contextvars(**{name: origin[name] for name in LOGGED_FIELDS if name in origin})
    join(origin)


def pack_request(request: Mapping[str, Any]) -> bytes | None:
    """Return the fields of a `StoredRequest` as compressed JSON; None if it exceeds `MAX_REQUEST_BYTES`."""
    packed = zlib.compress(to_json(request))
    return packed if len(packed) <= MAX_REQUEST_BYTES else None


def unpack_request(packed: bytes) -> StoredRequest:
    """Return the request that `pack_request` packed."""
    return StoredRequest.model_validate_json(zlib.decompress(packed))
