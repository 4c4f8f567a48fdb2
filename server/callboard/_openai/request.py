"""The parts that requests for chat completions and for responses share, and the user of a request.

User, chat and tool activity come from headers or from the body's field `callboard`. Open WebUI's headers are in
`callboard.openwebui`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

from pydantic import ConfigDict
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from callboard._openai.client_functions import Offer, read_offer
from callboard.errors import RequestError
from callboard.http.auth import UserVerifier, find_bound_user
from callboard.http.body import refuse_invalid
from callboard.openwebui.requests import CHAT_HEADERS, UNSAVED_CHATS, USER_HEADERS, read_headers
from callboard.runs.conversation import Reference
from callboard_protocol import ChatMessage, RunRequest, User
from callboard_protocol.requests import Identifier
from callboard_protocol.wire import Wire

ToolActivity = Literal["none", "status", "details", "mcp", "items"]
"""How tool calls are shown: not at all, as Open WebUI's status events, as `<details>` blocks, or as response items:
`mcp_call`, or `function_call` with `function_call_output` for clients that know no other."""

UNVOUCHED = "body:"
"""The beginning of the ids of users that a request's body names."""

_T = TypeVar("_T")
_HEADERS = {**CHAT_HEADERS, "tool_activity": "x-callboard-tool-activity"}


class ClientContext(Wire):
    """The field `callboard` of a request's body; headers give the values that it leaves out.

    Without `chat_id` nothing is stored. `task` names a background task, which gets a completion without tools.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chat_id: Identifier | None = None
    message_id: Identifier | None = None
    task: str | None = None
    tool_activity: ToolActivity | None = None


def refuse_empty(items: tuple[_T, ...]) -> tuple[_T, ...]:
    """Return the items of a valid list. Raises `ValueError` if there are none."""
    # Not `min_length`, which reports an invalid item as missing too.
    if not items:
        raise ValueError("must not be empty")
    return items


class RequestBody(Wire):
    """The fields of both bodies."""

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

    @property
    def reference(self) -> Reference:
        """The response that the request continues: none."""
        return Reference()

    @abstractmethod
    def build_run(self, client: ClientContext, user: User | None) -> RunRequest:
        """Return the run. Raises `RequestError` for an option that agents do not support."""

    def _build_run(
        self, client: ClientContext, user: User | None, messages: Sequence[ChatMessage], options: dict[str, Any]
    ) -> RunRequest:
        """Return the run of these messages, with the client's functions."""
        if self.parallel_tool_calls is False:
            # True is the default of models, so it is not sent.
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
    """Return `client` with missing values from the headers. Raises `RequestError` for an invalid header."""
    given = read_headers(_HEADERS, headers)
    if given.get("chat_id", "").startswith(UNSAVED_CHATS):
        del given["chat_id"]
    with refuse_invalid():
        return ClientContext.model_validate(given | (client or ClientContext()).model_dump(exclude_none=True))


def read_user(user_id: str | None, request: HTTPConnection, user_verifier: UserVerifier) -> User | None:
    """Return the user of the API key, otherwise the user in the headers, otherwise the one of the body's field `user`.

    Any client can write any name into a body. So such a user is separate from the users of headers, with separate chats
    and memories, and is ignored if users need a signature. Raises `RequestError`, `UserRefused` for a user other than
    the API key's, and `Unauthorized` for a user without a valid signature.
    """
    given = read_headers(USER_HEADERS, request.headers)
    if bound := find_bound_user(request, given.get("id"), user_id):
        return bound
    if user_verifier.is_required:
        named = request.headers.get(USER_HEADERS["id"])
        return user_verifier.verify(named, request) if named else user_verifier.find_verified_user(request)
    given["name"] = unquote(given.get("name", ""))
    with refuse_invalid():
        if given.get("id", "").startswith(UNVOUCHED):
            raise RequestError(f"x-openwebui-user-id: no user's id begins with {UNVOUCHED}")
        if "id" in given:
            return User.model_validate(given)
        return User(id=f"{UNVOUCHED}{user_id}") if user_id else None
