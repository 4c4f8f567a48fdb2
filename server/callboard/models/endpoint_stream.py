"""Reads answers of endpoints within limits: the bytes, the chunks of a stream, and errors.

An endpoint may be broken or hostile as well as slow: it may end in the middle, never end a line, or send a body that
decompresses to a thousand times its size. Lines are not split by httpx's `aiter_lines`, because that also splits at
U+2028 and U+0085, which JSON may contain unescaped.
"""

import asyncio
import json
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Any

import anyio.lowlevel
import httpx

from callboard.text import storable_json
from callboard_protocol import Decoder, Frame, FrameTooLong

MAX_CHUNK_BYTES = 16 * 1024 * 1024
"""The largest chunk of a stream. The largest chunks in practice contain a picture."""
REFUSAL_STATUSES = frozenset({400, 413, 415, 422})
"""Statuses that concern the request itself: the same request would be refused again."""

CONTEXT_TOO_LONG = "context_length_exceeded"
"""OpenAI's code for a context that is too long. Clients that see it shorten their request."""

FILTERED = "content_filter"
"""The code of OpenAI and Azure for content that their filter blocks."""

_TOO_LONG = re.compile(
    r"(?:maximum|available|exceed\w*|longer than|beyond)\b[^.]{0,60}\bcontext (?:length|size|window)"
    r"|context (?:length|size|window)[^.]{0,40}\b(?:exceed|too (?:long|large|small))"
    r"|(?:prompt|input|request) is too long|exceed_context_size"
    # "Too many tokens, please wait" is a rate limit of Amazon Bedrock.
    r"|(?:input|prompt) (?:token count|length)\b.{0,30}\bexceeds|maximum prompt length is"
    r"|`inputs` tokens \+ `max_new_tokens` must"
    r"|range of input length should be|exceeded model token limit|prompt exceeds max length"
    r"|too many tokens: total number|context length (?:is|of) only|(?:reached|greater than the) context length"
    r"|request body too large for .{0,80}\btokens|reduce the length of the messages"
    r"|longer than the maximum model length",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")

END_SECONDS = 0.1
"""The longest wait for the end of an answer after `[DONE]`; some endpoints keep the connection open."""

MAX_ERROR_BYTES = 64 * 1024
MAX_QUOTED_CHARS = 200
_UNPACKED_PIECE_BYTES = 64 * 1024
_STATUS = re.compile(r"[45][0-9]{2}")
_MESSAGE = re.compile(r"(?:message|msg|detail)$", re.IGNORECASE)
"""The names of the fields with an error's words: `message`, `error_message`, `status_msg` and so on."""
# FastAPI and vLLM quote the request: nothing may be learnt from its text.
_QUOTES_REQUEST = re.compile(r"[\"']input[\"']\s*:")
_SUCCESS_CODES = frozenset({"", "0", "200", "ok", "success", "none"})
_EVENT_STREAM_START = re.compile(rb"\s*(?::|data|event|id|retry)")
# Some proxies send a comment, or a word for "still here", as `data`.
_KEEP_ALIVE = re.compile(r":.*|\W*(?:ping|pong|heart-?beat|keep[-_ ]?alive)\W*", re.IGNORECASE | re.DOTALL)
_KEEP_ALIVE_EVENTS = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
# zlib's value for "gzip or zlib".
_ANY_ZLIB_HEADER = zlib.MAX_WBITS | 32


class UnreadableAnswer(ValueError):
    """An answer that cannot be read. The exception's text completes "The model endpoint …"."""


class CutOff(Exception):
    """The stream ended before the answer did."""


class EndpointError(Exception):
    """An error from an endpoint, as a status or as an object in the stream.

    Attributes:
        status: The HTTP status, None for an object that names none.
        body: The error object, or text.
        detail: The endpoint's reason.
    """

    def __init__(self, status: int | None, body: object, text: str = "") -> None:
        self.status = status
        self.body = body
        fields = body if isinstance(body, dict) else {"message": body}
        metadata = fields.get("metadata")
        # OpenRouter's message is "Provider returned error", and the provider's message is in `raw`.
        messages = [value for name, value in fields.items() if _MESSAGE.search(name)]
        messages.append(metadata.get("raw") if isinstance(metadata, dict) else None)
        texts = [message for message in messages if message and isinstance(message, str)]
        self.detail = ": ".join(texts) or text or "it gave no reason"
        super().__init__(self.detail)

    @property
    def words(self) -> str:
        """The reason and the error object, up to a quotation of the request."""
        return _QUOTES_REQUEST.split(f"{self.detail} {self.body}", 1)[0]


async def send(client: httpx.AsyncClient, request: httpx.Request, *, follow_redirects: bool = True) -> httpx.Response:
    """Send a request and return its response once the status has arrived. Raises `httpx.HTTPError`.

    The caller closes the response. httpx follows a redirect to another origin without the key.
    """
    try:
        return await client.send(request, stream=True, follow_redirects=follow_redirects)
    except (AttributeError, RuntimeError) as error:
        # In uvloop a connection that is reset at once has no socket: anyio then raises an AttributeError for
        # `getpeername`, or reports that the handler is closed.
        raise httpx.ConnectError("the connection was reset", request=request) from error


async def bound_body(response: httpx.Response) -> None:
    """Limit the size of a body before it is read: a hook for `event_hooks={"response": …}`."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    coding = response.headers.pop("Content-Encoding", "identity").strip().lower()
    response.stream = _BoundedBody(response.stream, coding, is_answer=response.is_success)


async def read_error(response: httpx.Response) -> EndpointError:
    """Return the error in an unsuccessful response, and close it."""
    async with aclosing(response):
        text = (await response.aread()).decode("utf-8", "replace").strip()
    body = json.loads(text) if _is_json(text) else text
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error", body) if isinstance(body, dict) else body
    return EndpointError(response.status_code, error, text or response.reason_phrase)


def upstream_code(body: object, message: str) -> str:
    """Return the endpoint's error code, empty if it gave none as text.

    `body` is the error object. Many endpoints report a context that is too long only in their message.
    """
    fields: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    if isinstance(nested := fields.get("error"), Mapping):
        fields = nested
    code = fields.get("code")
    kind = fields.get("type")
    if CONTEXT_TOO_LONG in (code, kind) or _TOO_LONG.search(f"{kind} {message}"):
        return CONTEXT_TOO_LONG
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


async def read_json(response: httpx.Response) -> object:
    """Return the JSON value of a whole body, and close the response. Raises `UnreadableAnswer` and `CutOff`."""
    async with aclosing(response), aclosing(_read_bytes(response)) as pieces:
        return _read_json(await _read_whole(b"", pieces))


def read_models(answer: object) -> list[dict[str, Any]]:
    """Return the entries with an id of a list of models in OpenAI's form, empty for any other answer."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    models = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [model for model in models if model.get("id") and isinstance(model["id"], str)]


async def read_chunks(response: httpx.Response) -> AsyncGenerator[object, None]:
    """Yield the JSON value of each chunk up to `[DONE]`.

    A body that starts as JSON is a single chunk, because some endpoints do not stream. The content type is ignored:
    gateways send either one for both.

    Raises:
        UnreadableAnswer: The body is not a stream of JSON chunks.
        EndpointError: The stream contains an error.
        CutOff: The connection broke, or the stream ended without `[DONE]`.
    """
    has_frames = has_choices = False
    chunk: object = None
    async with aclosing(_read_bytes(response)) as pieces:
        beginning, is_json = await _read_beginning(pieces)
        if is_json:
            # Some endpoints send one line of JSON per chunk instead.
            for line in _split_data(Frame("", await _read_whole(beginning, pieces))):
                completion = _read_json(line)
                if _has_choices(completion):
                    yield completion
                _raise_for_error(completion)
                if not _has_choices(completion):
                    raise _make_error(completion)
            return
        async for frame in _read_frames(beginning, pieces):
            has_frames = True
            for line in _split_data(frame):
                if line.startswith("[DONE]"):
                    if chunk and not has_choices:
                        raise _make_error(chunk)
                    await _read_end(pieces)
                    return
                chunk = _read_json(line)
                has_choices = has_choices or _has_choices(chunk)
                # A chunk may contain text as well as an error.
                yield chunk
                _raise_for_error(chunk)
    if not has_frames and beginning and not _EVENT_STREAM_START.match(beginning):
        raise _not_json_error(beginning.decode("utf-8", "replace"))
    raise CutOff


async def read_events(response: httpx.Response) -> AsyncGenerator[object, None]:
    """Yield the JSON value of each server-sent event.

    Raises as `read_chunks`, but `CutOff` only if the connection breaks.
    """
    async with aclosing(_read_bytes(response)) as pieces:
        async for frame in _read_frames(b"", pieces):
            for line in _split_data(frame):
                yield _read_json(storable_json(line.encode()).decode())


async def _read_end(pieces: AsyncIterator[bytes]) -> None:
    """Read what follows `[DONE]`, so that the connection can be used for the next request."""
    with suppress(TimeoutError, CutOff, UnreadableAnswer):
        async with asyncio.timeout(END_SECONDS):
            async for _ in pieces:
                pass


async def _read_beginning(pieces: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """Return the body up to the first piece that is not blank, and whether JSON starts there."""
    async for piece in pieces:
        text = piece.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text:
            return piece, text.startswith((b"{", b"["))
    return b"", False


async def read_within(max_bytes: int, pieces: AsyncIterator[bytes], beginning: bytes = b"") -> bytearray | None:
    """Return `beginning` and the pieces of a body as one; None, without reading on, if they exceed `max_bytes`."""
    body = bytearray(beginning)
    async for piece in pieces:
        body += piece
        if len(body) > max_bytes:
            break
    return body if len(body) <= max_bytes else None


async def _read_whole(beginning: bytes, pieces: AsyncIterator[bytes]) -> str:
    body = await read_within(MAX_CHUNK_BYTES, pieces, beginning)
    if body is None:
        raise UnreadableAnswer(f"sent an answer of more than {MAX_CHUNK_BYTES // 2**20} MiB in one piece")
    return body.decode("utf-8-sig", "replace")


async def _read_frames(beginning: bytes, pieces: AsyncIterator[bytes]) -> AsyncGenerator[Frame, None]:
    decoder = _EndpointDecoder(MAX_CHUNK_BYTES)
    try:
        for frame in decoder.feed(beginning):
            yield frame
        async for piece in pieces:
            for frame in decoder.feed(piece):
                yield frame
        # llama.cpp sends no blank line after `[DONE]`. An incomplete chunk is dropped.
        for frame in decoder.feed(b"\n\n"):
            if frame.data.strip().startswith("[DONE]") or frame.event or _is_json(frame.data):
                yield frame
    except FrameTooLong as error:
        raise UnreadableAnswer(f"sent one chunk of more than {MAX_CHUNK_BYTES // 2**20} MiB") from error


async def _read_bytes(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Yield the body of an answer. Raises `UnreadableAnswer` for a web page, and `CutOff` if the connection breaks."""
    if "html" in response.headers.get("Content-Type", ""):
        raise UnreadableAnswer(
            "answered with a web page: CALLBOARD_MODEL_BASE_URL must be the address of its API, often ending in /v1"
        )
    try:
        async for piece in response.aiter_bytes():
            yield piece
    except httpx.TimeoutException:
        raise
    except httpx.TransportError as error:
        raise CutOff from error


def _split_data(frame: Frame) -> Iterator[str]:
    """Yield the texts in a frame, without keep-alives. Raises `EndpointError` for a frame that is an error event.

    A frame has several texts if an endpoint omits the blank lines between them
    (https://github.com/ggml-org/llama.cpp/issues/14268).
    """
    event = frame.event.strip().lower()
    if event in _KEEP_ALIVE_EVENTS:
        return
    if event == "error":
        raise _make_error(_read_json(frame.data) if _is_json(frame.data) else frame.data)
    lines = frame.data.split("\n")
    for line in lines if len(lines) > 1 and not _is_json(frame.data) else [frame.data]:
        text = line.strip()
        if text and not _KEEP_ALIVE.fullmatch(text):
            yield text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _not_json_error(text) from error
    except RecursionError as error:
        raise UnreadableAnswer("sent JSON that is nested too deep") from error


def _not_json_error(text: str) -> UnreadableAnswer:
    return UnreadableAnswer(f"sent an answer that is not JSON: {' '.join(text[:MAX_QUOTED_CHARS].split())}")


def _has_choices(chunk: object) -> bool:
    return isinstance(chunk, dict) and chunk.get("choices") is not None


def _raise_for_error(chunk: object) -> None:
    """Raise the error that some endpoints put into a chunk, a choice or its delta."""
    if isinstance(chunk, list):
        # Google wraps its errors in a list.
        chunk = chunk[0] if chunk else None
    if not isinstance(chunk, dict):
        return
    if chunk.get("error") or "error" in (chunk.get("object"), chunk.get("type"), chunk.get("status")):
        raise _make_error(chunk)
    # MiniMax: https://github.com/CherryHQ/cherry-studio/issues/11287
    outcome = chunk.get("base_resp")
    if isinstance(outcome, dict) and _is_error_code(outcome.get("status_code")):
        raise _make_error(outcome)
    if not chunk.get("choices") and _is_bare_error(chunk):
        raise _make_error(chunk)
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        for place in (choice, *map(choice.get, ("delta", "message"))) if isinstance(choice, dict) else ():
            if isinstance(place, dict) and place.get("error"):
                raise _make_error(place)


def _is_bare_error(chunk: Mapping[str, Any]) -> bool:
    """Return whether a chunk without choices is an error that has no field `error`."""
    # FastChat's errors are text: https://github.com/chatchat-space/Langchain-Chatchat/issues/2607
    return bool(
        chunk.get("detail")
        or chunk.get("success") is False
        or _find_status(chunk)
        or any("error" in name.lower() and _is_error_code(value) for name, value in chunk.items())
        or (
            # Without the field, the words may be those of a step: "The model is loading."
            (chunk.get("choices", ()) is None or _is_error_code(chunk.get("code")))
            and any(_MESSAGE.search(name) and _is_error_code(value) for name, value in chunk.items())
        )
    )


def _is_error_code(code: object) -> bool:
    """Return whether a code, or the message beside it, is none that means success."""
    return str(code or "").lower() not in _SUCCESS_CODES


def _make_error(body: object) -> EndpointError:
    """Return the error that an object holds as `error`, or that it is."""
    if isinstance(body, dict) and isinstance(body.get("error"), dict | str):
        body = body["error"] or body
    return EndpointError(_find_status(body), body, json.dumps(body, ensure_ascii=False) if body else "")


def _find_status(error: object) -> int | None:
    # OpenRouter, vLLM and others put the corresponding HTTP status into `code`.
    fields = error if isinstance(error, dict) else {}
    texts = (str(fields.get(key)) for key in ("code", "status", "status_code", "statusCode", "error_code"))
    return next((int(text) for text in texts if _STATUS.fullmatch(text)), None)


class _EndpointDecoder(Decoder):
    """A decoder that also accepts errors which are not valid server-sent events.

    Until late 2025 llama.cpp sent errors in a field named `error` (https://github.com/ggml-org/llama.cpp/pull/16109).
    Others send the bare object.
    """

    def read_fields(self, line: bytes) -> Iterable[tuple[bytes, bytes]]:
        if line.startswith(b"{"):
            return [(b"data", line)]
        [(name, value)] = super().read_fields(line)
        return [(b"event", b"error"), (b"data", value)] if name == b"error" else [(name, value)]


class _BoundedBody(httpx.AsyncByteStream):
    """A body that is decompressed piece by piece. Of an error or a redirect only the beginning is read."""

    def __init__(self, packed: httpx.AsyncByteStream, coding: str, *, is_answer: bool) -> None:
        self._packed = packed
        self._coding = coding
        self._is_answer = is_answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._is_answer:
            async for piece in self._unpack():
                yield piece
            return
        left_bytes = MAX_ERROR_BYTES
        try:
            async for piece in self._unpack():
                yield piece[:left_bytes]
                left_bytes -= len(piece)
                if left_bytes <= 0:
                    return
        except (httpx.HTTPError, UnreadableAnswer):
            # The status is known, and its explanation in the body may be missing.
            return

    async def _unpack(self) -> AsyncIterator[bytes]:
        if self._coding == "identity":
            async for piece in self._packed:
                yield piece
            return
        # The request has `Accept-Encoding: identity`, but some gateways compress nevertheless:
        # https://github.com/Anionex/agent-vision-toolkit/pull/36
        if self._coding not in ("gzip", "x-gzip", "deflate"):
            raise UnreadableAnswer(f"compressed its answer as {self._coding[:40]!r}, although it was asked not to")
        unpacking = zlib.decompressobj(_ANY_ZLIB_HEADER)
        try:
            async for piece in self._packed:
                packed = piece
                while packed:
                    yield unpacking.decompress(packed, _UNPACKED_PIECE_BYTES)
                    packed = unpacking.unconsumed_tail
                    # The data may decompress to a thousand times its size, so other tasks get a turn.
                    await anyio.lowlevel.checkpoint()
            yield unpacking.flush()
        except zlib.error as error:
            raise UnreadableAnswer("sent an answer that cannot be decompressed") from error

    async def aclose(self) -> None:
        await self._packed.aclose()
