"""The encoding of server-sent events: encodes an event, and decodes a stream of bytes in chunks of any size.

Without I/O. Only the parts of the format that the protocol needs are written (`id`, `data`, comments); everything
except `retry` is read, according to the HTML standard
(https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream).
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from callboard_protocol.events import EVENT_CLASSES, Event

__all__ = ["Decoder", "Frame", "FrameError", "FrameTooLong", "decode", "encode"]

# Only the standard's line ends: str.splitlines() would also split JSON at U+2028 and U+0085.
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class FrameError(ValueError):
    """A frame of a known type cannot be read; later frames can."""


class FrameTooLong(FrameError):
    """A frame is longer than the decoder's limit; nothing after it can be read."""


@dataclass(frozen=True, slots=True)
class Frame:
    """An event of the stream: its `data` as text, the last `id` so far, and its name; empty if there is none."""

    id: str
    data: str
    event: str = ""


def encode(seq: int, event: Event) -> bytes:
    """Return a frame with one `data:` line, in ASCII so that it contains no line separators."""
    payload = json.dumps(event.model_dump(), ensure_ascii=True, separators=(",", ":"))
    return f"id: {seq}\ndata: {payload}\n\n".encode("ascii")


def decode(frame: Frame) -> Event | None:
    """Return the event in a frame; None if this version does not know its type.

    Raises `FrameError` if the frame is not a JSON object with a `type`, or if a field is invalid.
    """
    try:
        data = json.loads(frame.data)
    except ValueError as error:
        raise FrameError(f"frame {frame.id or '?'} is not JSON: {error}") from error
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise FrameError(f"frame {frame.id or '?'} has no type")
    event_class = EVENT_CLASSES.get(kind)
    if event_class is None:
        return None
    try:
        return event_class.model_validate(data)
    except ValidationError as error:
        raise FrameError(f"frame {frame.id or '?'} ({kind}) cannot be read: {error}") from error


class Decoder:
    r"""Decodes chunks of bytes into frames, in time linear in their length.

    >>> decoder = Decoder()
    >>> decoder.feed(b'id: 1\ndata: {"a"'), decoder.feed(b": 1}\n\n")
    ([], [Frame(id='1', data='{"a": 1}', event='')])

    `max_frame_bytes` limits the size of a frame; None for no limit.
    """

    def __init__(self, max_frame_bytes: int | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._start = b""
        self._started = False
        self._after_cr = False
        self._line_pieces: list[bytes] = []
        self._frame_bytes = 0
        self._id = ""
        self._event = ""
        # All lines of data with their line ends, in one buffer, so that many short lines cost no more than one long
        # line.
        self._data = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that `chunk` completes, in order. Raises `FrameTooLong`."""
        if not self._started:
            chunk = self._start + chunk
            if len(chunk) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(chunk):
                self._start = chunk
                return []
            chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
            self._started = True
        if not chunk:
            return []
        if self._after_cr:
            # A CR at the end of the last chunk has ended its line, so an LF here is not another line end.
            chunk = chunk.removeprefix(b"\n")
        frames = []
        start = 0
        for end in _LINE_END.finditer(chunk):
            self._line_pieces.append(chunk[start : end.start()])
            line = b"".join(self._line_pieces)
            self._line_pieces.clear()
            if frame := self._read_line(line):
                frames.append(frame)
                self._frame_bytes = 0
            else:
                self._count(end.start() - start)
            start = end.end()
        if rest := chunk[start:]:
            self._line_pieces.append(rest)
            self._count(len(rest))
        self._after_cr = chunk.endswith(b"\r")
        return frames

    def read_fields(self, line: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Return the names and values of the fields in a line; a subclass may read lines that the standard ignores."""
        name, _, value = line.partition(b":")
        return [(name, value.removeprefix(b" "))]

    def _count(self, added_bytes: int) -> None:
        self._frame_bytes += added_bytes
        if self._max_frame_bytes is not None and self._frame_bytes > self._max_frame_bytes:
            raise FrameTooLong(f"a frame is longer than the limit of {self._max_frame_bytes} bytes")

    def _read_line(self, line: bytes) -> Frame | None:
        if not line:
            return self._dispatch()
        for name, value in self.read_fields(line):
            if name == b"data":
                self._data += value
                self._data += b"\n"
            elif name == b"event":
                self._event = value.decode("utf-8", "replace")
            elif name == b"id" and b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> Frame | None:
        self._frame_bytes = 0
        event = self._event
        self._event = ""
        # An event without data is dropped, for example after a comment or a line with only `id:`.
        if not self._data:
            return None
        frame = Frame(self._id, self._data[:-1].decode("utf-8", "replace"), event)
        self._data.clear()
        return frame
