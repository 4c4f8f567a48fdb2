"""Request bodies: read up to limits of size, time and structure, then into their wire type.

The bodies of all requests have their memory together, from their first byte to the end of the runs that they began: a
bound on each body is none on all of them, since as many may come at once as there may be connections, and a run
holds what it was asked until it ends.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from callboard._openwebui.details_parser import count_blocks, translate
from callboard._runs import Run
from callboard._threads import REQUESTS
from callboard.errors import RequestError, RequestTimeout, RequestTooLarge, ServerBusy
from callboard_protocol import RunRequest

MAX_VALUES = 100_000
"""JSON values in a body. Each costs time in which nobody else is answered; a long chat has a tenth of this."""
MAX_ESCAPES = 2_000_000
"""Backslashes in a body. Strings are read in one step each, and escapes are what that takes long for."""
MAX_MESSAGES = 10_000
MAX_CALLS = 10_000
MAX_NAMED_ERRORS = 1_000
"""The number of errors beyond which none is named: to name each takes longer than to find it."""
BODY_SECONDS = 60.0

BODIES_AT_ONCE = 16
"""The number of the largest bodies that there may be; of ordinary ones there may be thousands."""

VALUE_BYTES = 300
"""The memory that each JSON value takes beside its text, once it is read: a small body may hold many."""

Body = TypeVar("Body", bound=BaseModel)


class BodyPlace:
    """One body's share of the memory for all."""

    def __init__(self, memory: "BodyMemory") -> None:
        self._memory = memory
        self._taken_bytes = 0
        self._run: asyncio.Task[None] | None = None

    @property
    def max_body_bytes(self) -> int:
        """The most that the body itself may have."""
        return self._memory.max_body_bytes

    def take(self, byte_count: int, value_count: int) -> bool:
        """Count these bytes and values more; return False where there is no memory for them beside the others'."""
        size = byte_count + value_count * VALUE_BYTES
        is_alone = self._memory.taken_bytes == self._taken_bytes
        if not is_alone and self._memory.taken_bytes + size > self._memory.max_bytes:
            return False
        self._memory.taken_bytes += size
        self._taken_bytes += size
        return True

    def give_back(self) -> None:
        """Forget what was counted: the body is not in memory any more."""
        self._memory.taken_bytes -= self._taken_bytes
        self._taken_bytes = 0

    def keep_until_end(self, run: Run) -> None:
        """Count it until the run that holds it has ended."""
        self._run = asyncio.create_task(run.wait())
        self._run.add_done_callback(lambda _: self.give_back())

    @property
    def is_kept(self) -> bool:
        """True where a run holds the body."""
        return self._run is not None


class BodyMemory:
    """The memory for the bodies of one server, each of up to `max_body_bytes`."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_bytes = BODIES_AT_ONCE * max_body_bytes
        self.taken_bytes = 0

    @contextmanager
    def take_place(self) -> Iterator[BodyPlace]:
        """Yield the place of one body, which ends with the block unless a run keeps it."""
        place = BodyPlace(self)
        try:
            yield place
        finally:
            if not place.is_kept:
                place.give_back()


async def read_body(request: Request, kind: type[Body], place: BodyPlace) -> Body:
    """Return the body as `kind`; what it takes in memory is counted in `place`.

    Raises `RequestTooLarge`, `RequestTimeout`, `ServerBusy`, or `RequestError` that names the wrong fields.
    """
    max_bytes = place.max_body_bytes
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
                    has_room = place.take(len(chunk), count - before)
                    chunks.append(chunk)
                else:
                    # Read to its end all the same: a client that is cut off while it sends does not see the answer.
                    chunks.clear()
                    place.give_back()
    except ClientDisconnect as error:
        raise RequestError("the client went away before the request was complete") from error
    except TimeoutError:
        raise RequestTimeout(f"the request was not complete after {BODY_SECONDS:g} s: send it again") from None
    if not has_room:
        raise ServerBusy(
            "the requests of others take all the memory that there is for requests: send it again in a few seconds, "
            "or raise CALLBOARD_MAX_REQUEST_MIB, of which all together may take "
            f"{BODIES_AT_ONCE} times as much"
        )
    if count > MAX_VALUES:
        raise RequestTooLarge(f"the request has more than {MAX_VALUES} JSON values: send a shorter chat")
    if escapes > MAX_ESCAPES:
        raise RequestTooLarge(
            f"the request has more than {MAX_ESCAPES} escaped characters: send a shorter chat, or letters as they are"
        )
    with refuse_invalid():
        return kind.model_validate_json(b"".join(chunks))


async def read_past_answers(request: RunRequest, *, holds_blocks: bool = True) -> RunRequest:
    """Return the request with earlier answers as the model should read them; see `_openwebui.details_parser`.

    Without `holds_blocks` what looks like a block in them is text: whoever a model repeats could have written it.
    Raises `RequestTooLarge` for more messages or tool calls than any chat has.
    """
    if len(request.messages) > MAX_MESSAGES:
        raise RequestTooLarge(f"the request has more than {MAX_MESSAGES} messages: send the newest of them")

    def translated() -> RunRequest:
        calls = sum(len(message.tool_calls or ()) + count_blocks(message) for message in request.messages)
        if calls > MAX_CALLS:
            raise RequestTooLarge(f"the request has more than {MAX_CALLS} tool calls: send the newest messages")
        return request.model_copy(update={"messages": translate(request.messages)}) if holds_blocks else request

    # Long chats take a while, in which others are answered.
    return await REQUESTS.run(translated)


class ValueCounter:
    """A counter of the values of a JSON text as it comes, which does not parse it."""

    def __init__(self) -> None:
        self._count = 1
        self._in_string = False
        self._held = b""

    def feed(self, chunk: bytes) -> int:
        """Return about how many values there are so far: each comma and each bracket that opens is one."""
        chunk = self._held + chunk
        # A backslash at the end may belong to a quotation mark that is still to come.
        kept = chunk.rstrip(b"\\")
        odd = (len(chunk) - len(kept)) % 2
        self._held = chunk[len(chunk) - odd :]
        stretches = chunk[: len(chunk) - odd].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(stretches[self._in_string :: 2])
        self._in_string ^= len(stretches) % 2 == 0
        self._count += sum(map(outside.count, (b",", b"[", b"{")))
        return self._count


@contextmanager
def refuse_invalid() -> Iterator[None]:
    """Turn what a wire type does not take into a `RequestError` that names the wrong fields."""
    try:
        yield
    except ValidationError as error:
        count = error.error_count()
        if count > MAX_NAMED_ERRORS:
            raise RequestError(f"body: {count} values do not fit: is it meant for another route?") from None
        details = error.errors(include_url=False, include_input=False)[:10]
        lines = [f"{'.'.join(map(str, detail['loc'])) or 'body'}: {_explain(detail)}" for detail in details]
        raise RequestError("; ".join(lines)) from None


def _explain(detail: ErrorDetails) -> str:
    """Return what is wrong with a value in words: a pattern that is all about control characters says little."""
    pattern = detail.get("ctx", {}).get("pattern", "")
    if "\\x00" in pattern:
        return "an id has no control characters, such as NUL: leave them out"
    return detail["msg"]
