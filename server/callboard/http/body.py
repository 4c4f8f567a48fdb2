"""Reads and validates request bodies within limits of size, time and structure.

The bodies of all requests share one memory budget. A limit for each body is not enough: as many bodies may arrive at
once as there are connections. A body counts until the run that it started has ended, because the run keeps it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from callboard.errors import RequestError, RequestTimeout, RequestTooLarge, ServerBusy
from callboard.openwebui.details_parser import count_blocks, translate
from callboard.runs import Run
from callboard.text import storable_json
from callboard.threads import REQUESTS
from callboard_protocol import RunRequest

MAX_VALUES = 100_000
"""JSON values in a body. Parsing them blocks all other requests; a long chat has a tenth of this number."""
MAX_ESCAPES = 2_000_000
"""Backslashes in a body. The parser reads each string in one step, and many escapes make that step slow."""
MAX_REPLACED_ESCAPES = 200_000
"""Escapes in a body with halves of emoji. Replacing the halves blocks all other requests."""
MAX_MESSAGES = 10_000
MAX_CALLS = 10_000
MAX_NAMED_ERRORS = 1_000
"""With more validation errors than this, the response lists none: formatting an error is slower than finding it."""
BODY_SECONDS = 60.0

BODIES_AT_ONCE = 16
"""The budget for all bodies, as a multiple of the largest body. It has room for thousands of ordinary bodies."""

VALUE_BYTES = 300
"""Memory of a parsed JSON value in addition to its text. A small body can contain many values."""

Body = TypeVar("Body", bound=BaseModel)


class BodyReservation:
    """The part of the memory budget that one body uses."""

    def __init__(self, budget: "BodyBudget") -> None:
        self.budget = budget
        self.end_of_run: asyncio.Task[None] | None = None
        """Waits for the end of the run that keeps the body. Set by `hold_until_end_of`."""
        self._used_bytes = 0

    def try_add(self, byte_count: int, value_count: int) -> bool:
        """Add this many bytes and JSON values; return False if they exceed the budget.

        A body that is alone in memory always fits.
        """
        size = byte_count + value_count * VALUE_BYTES
        is_only_body = self.budget.used_bytes == self._used_bytes
        if not is_only_body and self.budget.used_bytes + size > self.budget.max_bytes:
            return False
        self.budget.used_bytes += size
        self._used_bytes += size
        return True

    def release(self) -> None:
        """Return the memory to the budget: the body is no longer in memory."""
        self.budget.used_bytes -= self._used_bytes
        self._used_bytes = 0

    def hold_until_end_of(self, run: Run) -> None:
        """Keep the reservation until the run has ended, because the run keeps the body."""
        self.end_of_run = asyncio.create_task(run.wait())
        self.end_of_run.add_done_callback(lambda _: self.release())


class BodyBudget:
    """The memory budget for all request bodies of one server, each of up to `max_body_bytes`."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_bytes = BODIES_AT_ONCE * max_body_bytes
        self.used_bytes = 0

    @contextmanager
    def reserve(self) -> Iterator[BodyReservation]:
        """Yield an empty reservation for one body; it is released when the block ends, unless a run holds it."""
        reservation = BodyReservation(self)
        try:
            yield reservation
        finally:
            if reservation.end_of_run is None:
                reservation.release()


async def read_body(request: Request, kind: type[Body], reservation: BodyReservation) -> Body:
    """Return the body as an instance of `kind`, and add its memory to `reservation`.

    Raises `RequestTooLarge`, `RequestTimeout`, `ServerBusy` if the memory budget is used up, or `RequestError` that
    names the invalid fields.
    """
    max_bytes = reservation.budget.max_body_bytes
    chunks: list[bytes] = []
    total = 0
    values = ValueCounter()
    count = 0
    escapes = 0
    has_room = True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                total += len(chunk)
                if total > max_bytes:
                    raise RequestTooLarge(
                        f"the request is larger than {max_bytes} bytes: send less, or raise CALLBOARD_MAX_REQUEST_MIB"
                    )
                if has_room and count <= MAX_VALUES and escapes <= MAX_ESCAPES:
                    before = count
                    count = values.feed(chunk)
                    escapes += chunk.count(b"\\")
                    has_room = reservation.try_add(len(chunk), count - before)
                    chunks.append(chunk)
                else:
                    # Read the rest and discard it: a client that is cut off while it sends does not read the response.
                    chunks.clear()
                    reservation.release()
    except ClientDisconnect as error:
        raise RequestError("the client closed the connection before the request was complete") from error
    except TimeoutError:
        raise RequestTimeout(f"the request was not complete after {BODY_SECONDS:g} s: send it again") from None
    if not has_room:
        raise ServerBusy(
            "other requests use all the memory for request bodies: send it again in a few seconds, or raise "
            f"CALLBOARD_MAX_REQUEST_MIB (all bodies together may use {BODIES_AT_ONCE} times its value)"
        )
    if count > MAX_VALUES:
        raise RequestTooLarge(f"the request has more than {MAX_VALUES} JSON values: send a shorter chat")
    if escapes > MAX_ESCAPES:
        raise RequestTooLarge(
            f"the request has more than {MAX_ESCAPES} backslashes: send a shorter chat, or characters without escapes"
        )
    with refuse_invalid():
        return _parse(kind, b"".join(chunks))


def _parse(kind: type[Body], body: bytes) -> Body:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        is_escape = error.error_count() == 1 and "hex escape" in error.errors(include_input=False)[0]["msg"]
        if not is_escape or body.count(b"\\u") + body.count(b"\\\\") > MAX_REPLACED_ESCAPES:
            raise
    # JavaScript clients that cut a text between the halves of an emoji would send them in every request of the chat:
    # https://github.com/anomalyco/opencode/pull/17758
    return kind.model_validate_json(storable_json(body))


async def read_past_answers(request: RunRequest, *, holds_blocks: bool = True) -> RunRequest:
    """Return the request with the HTML blocks of earlier answers turned back into tool calls.

    `openwebui.details_parser` reads the blocks. Pass `holds_blocks=False` if the client stores no blocks: text that
    looks like one may then come from a page that the model quoted. Raises `RequestTooLarge` if there are more than
    `MAX_MESSAGES` messages or `MAX_CALLS` tool calls.
    """
    if len(request.messages) > MAX_MESSAGES:
        raise RequestTooLarge(f"the request has more than {MAX_MESSAGES} messages: send the newest of them")

    def translated() -> RunRequest:
        calls = sum(len(message.tool_calls or ()) + count_blocks(message) for message in request.messages)
        if calls > MAX_CALLS:
            raise RequestTooLarge(f"the request has more than {MAX_CALLS} tool calls: send the newest messages")
        return request.model_copy(update={"messages": translate(request.messages)}) if holds_blocks else request

    # In a thread, because a long chat takes long enough to delay other requests.
    return await REQUESTS.run(translated)


class ValueCounter:
    """Estimates the number of values in a JSON text that arrives in chunks, without parsing it."""

    def __init__(self) -> None:
        self._count = 1
        self._in_string = False
        self._pending = b""

    def feed(self, chunk: bytes) -> int:
        """Return the estimate after this chunk: the number of commas and opening brackets outside strings."""
        chunk = self._pending + chunk
        # A backslash at the end of the chunk may escape a quotation mark at the start of the next one.
        backslashes = len(chunk) - len(chunk.rstrip(b"\\"))
        complete = len(chunk) - backslashes % 2
        self._pending = chunk[complete:]
        parts = chunk[:complete].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside_strings = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self._count += sum(map(outside_strings.count, (b",", b"[", b"{")))
        return self._count


@contextmanager
def refuse_invalid() -> Iterator[None]:
    """Turn a pydantic `ValidationError` within the block into a `RequestError` that names the invalid fields."""
    try:
        yield
    except ValidationError as error:
        count = error.error_count()
        if count > MAX_NAMED_ERRORS:
            raise RequestError(f"body: {count} values are invalid: is it meant for another route?") from None
        details = error.errors(include_url=False, include_input=False)[:10]
        lines = [f"{'.'.join(map(str, detail['loc'])) or 'body'}: {_explain(detail)}" for detail in details]
        raise RequestError("; ".join(lines)) from None


def _explain(detail: ErrorDetails) -> str:
    """Return the message of a validation error; patterns against control characters are replaced with words."""
    pattern = detail.get("ctx", {}).get("pattern", "")
    if "\\x00" in pattern:
        return "an id has no control characters, such as NUL: leave them out"
    return detail["msg"]
