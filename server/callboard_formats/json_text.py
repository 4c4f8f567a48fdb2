"""JSON in running text: where a value ends, and the calls that stand in it. Read forward, each character once.

Nothing here decodes arguments: they are cut out of the text to the letter, so that what is
stored is what the model wrote, and repair is left to one place. A value that is not closed is
reported as such and never completed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from callboard_formats.syntax import Watcher, WrittenCall
from callboard_formats.text_buffer import Reading, TextBuffer, read_now

NAME_KEYS = ("name", "tool", "tool_name", "function_name", "function")
ARGUMENTS_KEYS = ("arguments", "parameters", "args", "params")

_OUTSIDE = regex.compile(r"[{}\[\]:,\"]|(?<=[{\[,:]\s{0,8})'|<|\n")
_IN_DOUBLE = regex.compile(r"[\"\\]")
_IN_SINGLE = regex.compile(r"['\\]")
_NEVER = regex.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class Value:
    """An object or array as it stands in a text; `whole`: its last bracket was seen.

    `members`: of an object, the raw text of each value by its key; the last may be incomplete.
    `doubled`: a key stood there twice.
    """

    text: str
    whole: bool
    members: dict[str, str]
    too_deep: bool = False
    doubled: bool = False


class _Shown:
    """The part of an object's arguments that was shown."""

    def __init__(self, buffer: TextBuffer, watcher: Watcher | None, name: str) -> None:
        self._buffer = buffer
        self._watcher = watcher
        self._name = name
        self._at: int | None = None

    def begin(self, place: int, name: str = "") -> None:
        self._name = name or self._name
        self._at = place if self._watcher and self._name else None

    def up_to(self, end: int) -> None:
        if self._at is not None and self._watcher and end > self._at:
            self._watcher.arguments(self._name, self._buffer.cut(self._at, end))
            self._at = end

    def end(self, end: int) -> None:
        self.up_to(end)
        self._at = None


def read_value(
    buffer: TextBuffer,
    end: "regex.Pattern[str]" = _NEVER,
    watcher: Watcher | None = None,
    name: str = "",
    depth_limit: int | None = None,
) -> Reading[Value]:
    """Read the object or array whose bracket stands at `buffer.position`.

    `end` is what closes the call. Found outside a string it shows that brackets are missing; found inside a
    string that no JSON follows, that its quotation mark is missing. With a `watcher` arguments are shown as
    they come: those of an object that names its tool first, or with `name` the object itself.
    """
    return _ValueReader(buffer, end, watcher, name, depth_limit).read()


class _ValueReader:
    """The reading of one value."""

    def __init__(
        self,
        buffer: TextBuffer,
        end: "regex.Pattern[str]",
        watcher: Watcher | None,
        name: str,
        depth_limit: int | None,
    ) -> None:
        self._buffer = buffer
        self._end = end
        self._name = name
        self._depth_limit = depth_limit
        self._start = buffer.keep()
        self._shown = _Shown(buffer, watcher, name)
        self._depth = 0
        self._members: dict[str, str] = {}
        self._doubled = False
        self._key: str | None = None
        """The key of the member that is being read, and where its value begins."""
        self._value_from: int | None = None
        self._named = ""
        """The tool that the object has named so far."""
        if name:
            self._shown.begin(self._start)

    def read(self) -> Reading[Value]:  # noqa: C901 - one mark is read beside the other
        buffer = self._buffer
        while True:
            mark = yield from _find(buffer, _OUTSIDE, self._shown)
            match mark:
                case None:
                    return self._unfinished()
                case "{" | "[":
                    if mark == "[" and (yield from buffer.match(self._end)):
                        return self._unfinished()
                    self._open(mark)
                    if self._depth_limit is not None and self._depth > self._depth_limit:
                        return self._unfinished(too_deep=True)
                case "}" | "]":
                    self._depth -= 1
                    if self._depth == 0:
                        return self._finished()
                    buffer.position += 1
                case ":":
                    buffer.position += 1
                    if self._depth == 1 and self._key is not None and self._value_from is None:
                        self._value_from = buffer.position
                case ",":
                    if self._depth == 1:
                        self._end_member(buffer.position)
                    buffer.position += 1
                case '"' | "'":
                    if (value := (yield from self._string(mark))) is not None:
                        return value
                case _:
                    if (yield from buffer.match(self._end)):
                        return self._unfinished()
                    buffer.position += 1

    def _open(self, bracket: str) -> None:
        """Move into an object or an array; the first that are the arguments of a named tool are shown."""
        is_arguments = self._depth == 1 and bracket == "{" and self._key in ARGUMENTS_KEYS and self._value_from
        if is_arguments and self._named and not self._name:
            self._shown.begin(self._buffer.position, self._named)
        self._depth += 1
        self._buffer.position += 1

    def _string(self, mark: str) -> Reading[Value | None]:
        """Move behind a string; return the whole value where its end, or that of the text, is missing."""
        buffer = self._buffer
        begin = buffer.position
        buffer.position += 1
        if not (yield from _string(buffer, _IN_DOUBLE if mark == '"' else _IN_SINGLE, self._shown)):
            return self._unfinished()
        string_end = buffer.position
        if buffer.is_at_end():
            self._shown.up_to(string_end)
        if self._depth == 1 and self._value_from is None:
            self._key = buffer.cut(begin + 1, string_end - 1)
        torn = yield from _torn(buffer, begin, string_end, self._end)
        if torn is None:
            return None
        # The call keeps what was previewed of it, but the answer is read on behind the marker.
        buffer.position = string_end
        value = self._unfinished()
        buffer.rewind(torn)
        return value

    def _end_member(self, place: int) -> None:
        key = self._key
        if key is not None and self._value_from is not None:
            self._doubled = self._doubled or key in self._members
            self._members[key] = self._buffer.cut(self._value_from, place).strip()
            if key in NAME_KEYS and not self._named and not self._members[key].startswith("{"):
                self._named = plain(self._members[key])
            if not self._name:
                self._shown.end(place)
        self._key = self._value_from = None

    def _finished(self) -> Value:
        buffer = self._buffer
        self._end_member(buffer.position)
        buffer.position += 1
        self._shown.end(buffer.position)
        return Value(buffer.cut(self._start, buffer.position), True, self._members, doubled=self._doubled)

    def _unfinished(self, *, too_deep: bool = False) -> Value:
        buffer = self._buffer
        self._end_member(buffer.position)
        self._shown.end(buffer.position)
        return Value(buffer.cut(self._start, buffer.position), False, self._members, too_deep, self._doubled)


def _find(buffer: TextBuffer, pattern: "regex.Pattern[str]", shown: _Shown) -> Reading[str | None]:
    """Move to the next character that `pattern` matches and return it, showing what was passed."""
    searching = buffer.find(pattern)
    while True:
        try:
            next(searching)
        except StopIteration as done:
            found: regex.Match[str] | None = done.value
            return found[0] if found else None
        shown.up_to(buffer.position)
        yield


def _string(buffer: TextBuffer, marks: "regex.Pattern[str]", shown: _Shown) -> Reading[bool]:
    """Move behind the quotation mark that ends a string; return False where the text ends before it."""
    while True:
        mark = yield from _find(buffer, marks, shown)
        if mark is None:
            return False
        if mark != "\\":
            buffer.position += 1
            return True
        # What a backslash stands before is no mark; it may not have come yet.
        while buffer.position + 1 >= buffer.end:
            if buffer.final:
                buffer.position = buffer.end
                return False
            yield
        buffer.position += 2


_GOES_ON = frozenset(',}]:"')


def _torn(buffer: TextBuffer, start: int, string_end: int, end: "regex.Pattern[str]") -> Reading[int | None]:
    """Return where `end` stands within a string that no JSON follows: its quotation mark was forgotten."""
    if end is _NEVER:
        return None
    yield from buffer.space()
    following = yield from buffer.peek()
    if following in _GOES_ON:
        return None
    found = end.search(buffer.cut(start, string_end))
    return start + found.start() if found else None


def read_arguments_of(
    buffer: TextBuffer, end: "regex.Pattern[str]" = _NEVER, watcher: Watcher | None = None, name: str = ""
) -> Reading[Value]:
    """Read the arguments of a call whose syntax gives it no end, at `buffer.position`: an object.

    With other objects right behind it, all are one text: which of them is meant, nobody knows.
    """
    start = buffer.keep()
    value = yield from read_value(buffer, end, watcher, name)
    over = buffer.position
    while value.whole and (yield from buffer.take(ANOTHER_OBJECT)):
        value = yield from read_value(buffer, end)
    return value if buffer.position == over else Value(buffer.cut(start, buffer.position), value.whole, {})


ANOTHER_OBJECT = regex.compile(r"[\s,;]{0,99}+(?=\{)")
"""What stands between one object and the next."""


def value_of(text: str) -> Value:
    """Return the object or array that `text` begins with."""
    return read_now(read_value(TextBuffer(text, final=True)))


def plain(raw: str) -> str:
    """Return the text of a JSON or Python string, or `raw` where it is none."""
    text = raw.strip()
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
        return text
    try:
        decoded = json.loads(text)
    except ValueError:
        return text[1:-1]
    return decoded if isinstance(decoded, str) else text


def call_in(value: Value, *, keyed: bool = False, cut_off: bool = False) -> WrittenCall:
    """Return the call that an object in an explicit call block stands for.

    Shapes: `{"name", "arguments"}`, its other spellings, `{"function": {"name", "arguments"}}`, and where
    they are `keyed`, `{name: arguments}`. A missing name is "". Where no member holds arguments but there are
    others, the whole object is the arguments: the call is then refused with what was written, instead of run
    with nothing. A call whose end was seen may lack its last bracket; where the text ended instead, it is `cut_off`.
    """
    members = value.members
    if value.doubled:
        name = next((plain(members[key]) for key in NAME_KEYS if key in members), "")
        return WrittenCall(name, value.text, not value.whole)
    if keyed and len(members) == 1:
        ((name, arguments),) = members.items()
        return WrittenCall(name, arguments, _is_truncated(value, arguments, cut_off=cut_off))
    if members.get("function", "").startswith("{"):
        # OpenAI's shape. One level only: what is nested deeper is nobody's shape.
        inner = value_of(members["function"])
        value = Value(inner.text, value.whole and inner.whole, inner.members)
        members = value.members
    name_key = next((key for key in NAME_KEYS if key in members), "")
    name = plain(members[name_key]) if name_key else ""
    given = [key for key in ARGUMENTS_KEYS if key in members]
    if len(given) > 1:
        # Which of them is meant, nobody knows.
        return WrittenCall(name, value.text, not value.whole)
    if given:
        arguments = members[given[0]]
        return WrittenCall(name, arguments, _is_truncated(value, arguments, cut_off=cut_off))
    others = members.keys() - {name_key, "type", "id", "tool_call_id", "index"}
    return WrittenCall(name, value.text if others or not name_key else "", not value.whole)


def describes_a_tool(members: dict[str, str]) -> bool:
    """Return whether the arguments of an object are a JSON schema: the model tells of a tool, and calls none."""
    if members.get("function", "").startswith("{"):
        members = value_of(members["function"]).members
    given = next((members[key] for key in ARGUMENTS_KEYS if members.get(key, "").startswith("{")), "")
    schema = value_of(given).members if given else {}
    return plain(schema.get("type", "")) == "object" and schema.get("properties", "").startswith("{")


def _is_truncated(value: Value, arguments: str, *, cut_off: bool) -> bool:
    return not value.whole and (cut_off or not is_whole(arguments))


def is_whole(written: str) -> bool:
    """Return whether nothing is missing in an object, though what holds it is not closed."""
    if not written.startswith("{"):
        return False
    value = value_of(written)
    return value.whole and len(value.text) == len(written)


_BEFORE_FIRST = regex.compile(r"[\s\[]")
_BETWEEN = regex.compile(r"[\s,;]")


def read_calls(
    buffer: TextBuffer, end: "regex.Pattern[str]", watcher: Watcher | None = None, *, keyed: bool = False
) -> Reading[Sequence[WrittenCall]]:
    """Read the calls of an array of objects, or of objects one after another, and move behind the last bracket."""
    calls: list[WrittenCall] = []
    in_array = (yield from buffer.peek()) == "["
    while True:
        while (yield from buffer.take(_BETWEEN if calls else _BEFORE_FIRST)):
            pass
        following = yield from buffer.peek()
        if following == "]" and in_array:
            buffer.position += 1
            in_array = False
            return calls
        if following != "{":
            return calls
        value = yield from read_value(buffer, end, watcher if not calls else None)
        calls.append(call_in(value, keyed=keyed, cut_off=buffer.is_at_end()))
        if not value.whole:
            return calls
