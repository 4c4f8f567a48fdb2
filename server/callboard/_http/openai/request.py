"""Requests in OpenAI's shapes: what chat completions and responses have in common, and who asks.

User, chat, and what to show come from headers or the body's field `callboard`; Open WebUI's headers are those of
`callboard._openwebui.requests`.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal
from urllib.parse import unquote

from pydantic import ConfigDict
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from callboard._http.body import refuse_invalid
from callboard._http.openai.client_functions import Offer, read_offer
from callboard._http.principal import find_bound_user
from callboard._http.vouching import Vouching
from callboard._openwebui import requests as open_webui
from callboard.errors import RequestError
from callboard_protocol import ChatMessage, RunRequest, User
from callboard_protocol.requests import Identifier
from callboard_protocol.wire import Wire

ToolActivity = Literal["none", "status", "details", "mcp", "items"]
"""The ways to tell of tool calls: not at all, as Open WebUI's status events, as `<details>` blocks; as items of a
response, either `mcp_call` or, for clients that know no other, `function_call` with its `function_call_output`."""

UNVOUCHED = "body:"
"""The beginning of the ids of users whom a request's body names."""

_HEADERS = {
    "chat_id": open_webui.CHAT_ID,
    "message_id": open_webui.MESSAGE_ID,
    "task": open_webui.TASK,
    "tool_activity": "x-callboard-tool-activity",
}


class ClientContext(Wire):
    """The field `callboard` of a request's body; what it leaves out, the headers say.

    Without `chat_id` nothing is kept. `task` names a background task, which gets a plain
    completion without tools.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chat_id: Identifier | None = None
    message_id: Identifier | None = None
    task: str | None = None
    tool_activity: ToolActivity | None = None


class RequestBody(Wire):
    """The fields that both bodies have."""

    model: Identifier
    stream: bool | None = None
    tools: tuple[Any, ...] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None
    callboard: ClientContext | None = None

    @cached_property
    def offer(self) -> Offer:
        """The functions that the client offers. Raises `RequestError`."""
        return read_offer(self.tools, self.tool_choice)

    @abstractmethod
    def build_run(self, client: ClientContext, user: User | None) -> RunRequest:
        """Return the run. Raises `RequestError` for what no agent can do."""

    def _build_run(
        self, client: ClientContext, user: User | None, messages: Sequence[ChatMessage], options: dict[str, Any]
    ) -> RunRequest:
        """Return the run of these messages, with the functions that are offered."""
        if self.parallel_tool_calls is False:
            # Several at once, as models have it, need not be asked for.
            options = {**options, "parallel_tool_calls": False}
        wanted = RunRequest(
            agent=self.model,
            chat_id=client.chat_id,
            message_id=client.message_id,
            user=user,
            messages=tuple(messages),
            task=client.task,
            options=options,
        )
        return self.offer.apply_to(wanted)


def read_client_context(client: ClientContext | None, headers: Headers) -> ClientContext:
    """Return `client` with what the headers say beside it. Raises `RequestError` for a header that does not fit."""
    given = _read_headers(_HEADERS, headers)
    if given.get("chat_id", "").startswith(open_webui.UNSAVED_CHATS):
        del given["chat_id"]
    with refuse_invalid():
        return ClientContext.model_validate(given | (client or ClientContext()).model_dump(exclude_none=True))


def read_user(user_id: str | None, request: HTTPConnection, vouching: Vouching) -> User | None:
    """Return the caller's own user, else the one whom the headers name, else the one of the body's field `user`.

    A name in a body is whatever the client writes, of whom nobody has vouched: it is a user apart from
    those of the headers, and so are its chats and memories. Where a user counts only with a signature it is nobody's.
    Raises `RequestError`, `UserRefused` for another user than the caller's own, and `Unauthorized` for a user whom
    nobody has signed for.
    """
    given = _read_headers(open_webui.USER, request.headers)
    if bound := find_bound_user(request, given.get("id"), user_id):
        return bound
    if vouching.is_asked:
        named = request.headers.get(open_webui.USER["id"])
        return vouching.check(named, request) if named else vouching.find_user(request)
    given["name"] = unquote(given.get("name", ""))
    with refuse_invalid():
        if given.get("id", "").startswith(UNVOUCHED):
            raise RequestError(f"x-openwebui-user-id: no user's id begins with {UNVOUCHED}")
        if "id" in given:
            return User.model_validate(given)
        return User(id=f"{UNVOUCHED}{user_id}") if user_id else None


def _read_headers(names: Mapping[str, str], headers: Headers) -> dict[str, str]:
    values = ((name, headers.get(header, "").strip()) for name, header in names.items())
    return {name: value for name, value in values if value and not open_webui.is_placeholder(value)}
