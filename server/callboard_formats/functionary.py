"""Reads Functionary v3.2 and v3.0: messages to recipients. A message to a tool is a call.

    >>>all
    Let me look.>>>search
    {"query": "storms"}>>>now
    {}

The specification is the chat template of meetkai/functionary-medium-v3.2; MeetKai's server and llama.cpp read it too.
A message to `all` is the answer. The prompt ends with `>>>`, so an answer begins with its first recipient. Arguments
are JSON, but a message to `python` may contain code. (v3.1 writes `<function=search>{…}</function>`: see Llama 3.)

`>>>` is not a special token and also occurs in ordinary text. If the model was not asked for this syntax, a message is
a call only if its JSON fills its lines and its recipient is a known tool. If the tool is unknown, no text may follow.
"""

import json
from collections.abc import Collection, Sequence

import regex

from callboard_formats.json_text import read_value
from callboard_formats.names import resolve_name
from callboard_formats.syntax import BlockContext, BlockItems, Syntax, Watcher, WrittenCall
from callboard_formats.text_buffer import Reading, TextBuffer
from callboard_formats.unmarked import DEPTH, END_OF_MESSAGE

SEPARATOR = ">>>"
ALL = "all"
INTERPRETER = "python"

_NAME = r"(?P<name>[A-Za-z_][\w.:-]{0,127}+)"
_HEADER = regex.compile(rf">>>{_NAME}\r?\n")
_MESSAGE_END = regex.compile(rf">>>[A-Za-z_][\w.:-]{{0,127}}+\r?\n|{END_OF_MESSAGE.pattern}", regex.IGNORECASE)
_OBJECT = regex.compile(r"\{\s{0,99}+[\"'}]")
_FIRST_MESSAGE = regex.compile(rf"{_NAME}\r?\n\s{{0,99}}+(?P<begins>\S)")


class Functionary(Syntax):
    """The syntax with `>>>`. `leaked` means that the model was not asked for this syntax."""

    name = "functionary"
    title = "Functionary v3.2"
    source = (
        "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/meetkai-functionary-medium-v3.2.jinja",
        "https://github.com/MeetKai/functionary/blob/main/functionary/prompt_template/llama3_prompt_template_v3.py",
    )
    models = (r"functionary.*v?3[.-]?[02](?!\d)",)
    template = (">>>${recipient}", "'>>>all")
    openers = (SEPARATOR,)
    stops = ("<|start_header_id|>tool",)

    def __init__(self, *, leaked: bool = False) -> None:
        self._leaked = leaked

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read a message to a tool, or only the header of a message to `all`."""
        header = yield from buffer.take(_HEADER)
        if header is None:
            return self._read_cut_off_header(buffer, context)
        name = header["name"]
        if name == ALL:
            return [] if context.first or not self._leaked else None
        resolved = resolve_name(name, context.schemas)
        if self._leaked and resolved is None and not context.line_start:
            return None
        yield from buffer.space()
        following = yield from buffer.peek()
        if resolved is None and following != "{" and name != INTERPRETER:
            return None
        if following == "{" and not self._leaked:
            return (yield from self._read_requested(buffer, name, context.watcher if resolved else None))
        if self._leaked:
            if following == "":
                return [WrittenCall(name, "", truncated=True)]
            return (yield from self._read_leaked(buffer, name, is_known=resolved is not None))
        words, closed = yield from _read_rest(buffer)
        if name == INTERPRETER:
            words = json.dumps({"code": words.strip()}, ensure_ascii=False)
        return [WrittenCall(name, words.strip(), truncated=not closed)]

    def _read_requested(self, buffer: TextBuffer, name: str, watcher: Watcher | None) -> Reading[Sequence[WrittenCall]]:
        start = buffer.keep()
        value = yield from read_value(buffer, _MESSAGE_END, watcher, name)
        if value.whole and (yield from _is_at_line_end(buffer)):
            return [WrittenCall(name, value.text)]
        _, closed = yield from _read_rest(buffer)
        return [WrittenCall(name, buffer.cut(start, buffer.position).rstrip(), truncated=not closed)]

    def _read_leaked(self, buffer: TextBuffer, name: str, *, is_known: bool) -> Reading[Sequence[WrittenCall] | None]:
        if not (yield from buffer.match(_OBJECT)):
            return None
        value = yield from read_value(buffer, _MESSAGE_END, depth_limit=DEPTH)
        if value.too_deep or (value.whole and not (yield from _is_at_line_end(buffer))):
            return None
        if value.whole and not is_known and not (yield from _is_at_message_end(buffer)):
            return None
        return [WrittenCall(name, value.text, truncated=not value.whole)]

    def _read_cut_off_header(self, buffer: TextBuffer, context: BlockContext) -> Sequence[WrittenCall] | None:
        """Return the call if the answer ends inside its header."""
        cut = buffer.cut_off(_HEADER) if buffer.final else None
        if cut is None or (self._leaked and not context.first):
            return None
        name = cut[0].removeprefix(SEPARATOR).rstrip("\r")
        begun = [one for one in (ALL, *context.schemas) if one.startswith(name)]
        if self._leaked and not (name and begun):
            return None
        buffer.position = buffer.end
        return [] if ALL.startswith(name) else [WrittenCall(name, "", truncated=True)]


def _is_at_line_end(buffer: TextBuffer) -> Reading[bool]:
    """Return whether the rest of the line is empty, or the message ends here."""
    while (following := (yield from buffer.peek())) in (" ", "\t"):
        buffer.position += 1
    if following in ("", "\r", "\n") or (yield from buffer.match(_MESSAGE_END)):
        return True
    return buffer.final and buffer.cut_off(_MESSAGE_END) is not None


def _is_at_message_end(buffer: TextBuffer) -> Reading[bool]:
    """Return whether the message or the answer ends here, except for white space."""
    place = buffer.position
    yield from buffer.space()
    is_over = (yield from buffer.peek()) == "" or (yield from buffer.match(_MESSAGE_END)) is not None
    buffer.rewind(place)
    return is_over


def _read_rest(buffer: TextBuffer) -> Reading[tuple[str, bool]]:
    """Return the rest of a message, and whether it has an end."""
    start = buffer.keep()
    end = yield from buffer.find(_MESSAGE_END)
    return buffer.cut(start, buffer.position), end is not None


class FirstMessage:
    """Prepends the `>>>` that the prompt ended with to an answer. Call `feed` for each piece, then `finish` once.

    Text that does not begin with a recipient is unchanged, because some servers remove the header.
    """

    def __init__(self, known: Collection[str]) -> None:
        self._recipients = (ALL, INTERPRETER, *known)
        self._held = ""
        self._is_over = False

    def feed(self, text: str) -> str:
        """Return the text that can be read now."""
        if self._is_over:
            return text
        self._held += text
        found = _FIRST_MESSAGE.match(self._held, partial=True)
        if found and found.partial:
            return ""
        is_message = found and (found["name"] in self._recipients or found["begins"] == "{")
        return self._end(is_message=bool(is_message))

    def finish(self) -> str:
        """Return the text that was held back."""
        if self._is_over or not self._held:
            return ""
        name = self._held.rstrip()
        is_whole = name != self._held
        recipients = [one for one in self._recipients if (one == name if is_whole else one.startswith(name))]
        return self._end(is_message=bool(recipients))

    def _end(self, *, is_message: bool) -> str:
        self._is_over = True
        return SEPARATOR + self._held if is_message else self._held
