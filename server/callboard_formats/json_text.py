"""Finds JSON values and calls in running text. Each character is read once.

Arguments are cut out of the text without decoding them. So the text that the model wrote can be stored, and only the
module `arguments` repairs it. A value that is not closed is reported as incomplete and never completed. The partial
parser of `pydantic_core` cannot replace this reader: callers need the raw text and the end of each value, and models
also write single quotation marks and bare words.
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
    """An object or array that was read from a text.

    Attributes:
        text: The raw text.
        whole: The value is complete.
        members: For an object, the raw text of each value by its key. The last value may be incomplete.
        too_deep: The value is nested more deeply than the limit.
        doubled: A key occurs twice.
    """

    text: str
    whole: bool
    members: dict[str, str]
    too_deep: bool = False
    doubled: bool = False


def read_value(
    buffer: TextBuffer,
    end: "regex.Pattern[str]" = _NEVER,
    watcher: Watcher | None = None,
    name: str = "",
    depth_limit: int | None = None,
) -> Reading[Value]:
    """Read the object or array whose bracket is at `buffer.position`.

    `end` matches the end of the call. A match outside of strings shows that brackets are missing. A match in a string
    shows that the closing quotation mark is missing, if no JSON follows the string. A `watcher` gets the arguments
    while they are read. With `name`, the object is the arguments. Otherwise the object contains them behind the tool's
    name.
    """
    return _ValueReader(buffer, end, watcher, name, depth_limit).read()


class _ValueReader:
    """Reads one value."""

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
        self._watcher = watcher
        self._name = name
        self._depth_limit = depth_limit
        self._start = buffer.keep()
        self._shown_to = self._start if name else None
        """The end of the arguments that the watcher has received; None outside of arguments."""
        self._depth = 0
        self._members: dict[str, str] = {}
        self._doubled = False
        self._key: str | None = None
        """The key of the current member. `_value_from` is the start of its value."""
        self._value_from: int | None = None
        self._named = ""
        """The tool's name, if a member with the name was read."""

    def read(self) -> Reading[Value]:  # noqa: C901 - one case for each mark
        buffer = self._buffer
        while True:
            mark = yield from self._find(_OUTSIDE)
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
                    if (value := (yield from self._read_string(mark))) is not None:
                        return value
                case _:
                    if (yield from buffer.match(self._end)):
                        return self._unfinished()
                    buffer.position += 1

    def _open(self, bracket: str) -> None:
        """Move into an object or an array. If it contains the arguments of a named tool, start to show them."""
        is_arguments = self._depth == 1 and bracket == "{" and self._key in ARGUMENTS_KEYS and self._value_from
        if is_arguments and self._named and not self._name:
            self._shown_to = self._buffer.position
        self._depth += 1
        self._buffer.position += 1

    def _read_string(self, mark: str) -> Reading[Value | None]:
        """Move behind a string. If the string is not closed, return the incomplete value; otherwise None."""
        buffer = self._buffer
        begin = buffer.position
        buffer.position += 1
        if not (yield from self._skip_string(_IN_DOUBLE if mark == '"' else _IN_SINGLE)):
            return self._unfinished()
        string_end = buffer.position
        if buffer.is_at_end():
            self._show_to(string_end)
        if self._depth == 1 and self._value_from is None:
            self._key = buffer.cut(begin + 1, string_end - 1)
        end_in_string = yield from _find_end_in_string(buffer, begin, string_end, self._end)
        if end_in_string is None:
            return None
        # The value contains the text that was already shown, but reading continues at the marker in the string.
        buffer.position = string_end
        value = self._unfinished()
        buffer.rewind(end_in_string)
        return value

    def _skip_string(self, marks: "regex.Pattern[str]") -> Reading[bool]:
        """Move behind the quotation mark that ends a string. Return False if the text ends before that."""
        buffer = self._buffer
        while True:
            mark = yield from self._find(marks)
            if mark is None:
                return False
            if mark != "\\":
                buffer.position += 1
                return True
            # Skip the character behind the backslash, which may not have arrived yet.
            while buffer.position + 1 >= buffer.end:
                if buffer.final:
                    buffer.position = buffer.end
                    return False
                yield
            buffer.position += 2

    def _find(self, pattern: "regex.Pattern[str]") -> Reading[str | None]:
        """Move to the next match of `pattern` and return its text. Show the text before it to the watcher."""
        searching = self._buffer.find(pattern)
        while True:
            try:
                next(searching)
            except StopIteration as done:
                found: regex.Match[str] | None = done.value
                return found[0] if found else None
            self._show_to(self._buffer.position)
            yield

    def _show_to(self, end: int) -> None:
        if self._watcher and self._shown_to is not None and end > self._shown_to:
            self._watcher(self._name or self._named, self._buffer.cut(self._shown_to, end))
            self._shown_to = end

    def _end_arguments(self, end: int) -> None:
        self._show_to(end)
        self._shown_to = None

    def _end_member(self, place: int) -> None:
        key = self._key
        if key is not None and self._value_from is not None:
            self._doubled = self._doubled or key in self._members
            self._members[key] = self._buffer.cut(self._value_from, place).strip()
            if key in NAME_KEYS and not self._named and not self._members[key].startswith("{"):
                self._named = decode_string(self._members[key])
            if not self._name:
                self._end_arguments(place)
        self._key = self._value_from = None

    def _finished(self) -> Value:
        buffer = self._buffer
        self._end_member(buffer.position)
        buffer.position += 1
        self._end_arguments(buffer.position)
        return Value(buffer.cut(self._start, buffer.position), True, self._members, doubled=self._doubled)

    def _unfinished(self, *, too_deep: bool = False) -> Value:
        buffer = self._buffer
        self._end_member(buffer.position)
        self._end_arguments(buffer.position)
        return Value(buffer.cut(self._start, buffer.position), False, self._members, too_deep, self._doubled)


_BEHIND_STRINGS = frozenset(',}]:"')


def _find_end_in_string(
    buffer: TextBuffer, start: int, string_end: int, end: "regex.Pattern[str]"
) -> Reading[int | None]:
    """Return the position of `end` in a string if no JSON follows the string; None if the string is correct."""
    if end is _NEVER:
        return None
    yield from buffer.space()
    following = yield from buffer.peek()
    if following in _BEHIND_STRINGS:
        return None
    found = end.search(buffer.cut(start, string_end))
    return start + found.start() if found else None


def read_arguments_object(
    buffer: TextBuffer, end: "regex.Pattern[str]" = _NEVER, watcher: Watcher | None = None, name: str = ""
) -> Reading[Value]:
    """Read the object of arguments at `buffer.position`, for a syntax without an end marker.

    If more objects follow directly, they are returned as one text, because it is unclear which object is meant.
    """
    start = buffer.keep()
    value = yield from read_value(buffer, end, watcher, name)
    over = buffer.position
    while value.whole and (yield from buffer.take(ANOTHER_OBJECT)):
        value = yield from read_value(buffer, end)
    return value if buffer.position == over else Value(buffer.cut(start, buffer.position), value.whole, {})


ANOTHER_OBJECT = regex.compile(r"[\s,;]{0,99}+(?=\{)")
"""The separators between two objects."""


def read_first_value(text: str) -> Value:
    """Return the object or array at the beginning of `text`."""
    return read_now(read_value(TextBuffer(text, final=True)))


def decode_string(raw: str) -> str:
    """Return the content of a JSON or Python string. Other text is returned without white space around it."""
    text = raw.strip()
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
        return text
    try:
        decoded = json.loads(text)
    except ValueError:
        return text[1:-1]
    return decoded if isinstance(decoded, str) else text


def build_call(value: Value, *, keyed: bool = False, cut_off: bool = False) -> WrittenCall:
    """Return the call that an object in a call block describes.

    The object may be `{"name", "arguments"}` with other spellings of the keys, `{"function": {"name", "arguments"}}`,
    or, if the syntax is `keyed`, `{name: arguments}`. The name of a call without a name is "".

    If no member contains arguments but there are other members, the whole object becomes the arguments. So the call
    does not run without arguments, and its error shows the text. The last bracket may be missing, unless the text was
    `cut_off` there.
    """
    members = value.members
    if value.doubled:
        name = next((decode_string(members[key]) for key in NAME_KEYS if key in members), "")
        return WrittenCall(name, value.text, not value.whole)
    if keyed and len(members) == 1:
        ((name, arguments),) = members.items()
        return WrittenCall(name, arguments, _is_truncated(value, arguments, cut_off=cut_off))
    if members.get("function", "").startswith("{"):
        # The form of OpenAI's API.
        inner = read_first_value(members["function"])
        value = Value(inner.text, value.whole and inner.whole, inner.members)
        members = value.members
    name_key = next((key for key in NAME_KEYS if key in members), "")
    name = decode_string(members[name_key]) if name_key else ""
    given = [key for key in ARGUMENTS_KEYS if key in members]
    if len(given) > 1:
        # It is unclear which of them is meant.
        return WrittenCall(name, value.text, not value.whole)
    if given:
        arguments = members[given[0]]
        return WrittenCall(name, arguments, _is_truncated(value, arguments, cut_off=cut_off))
    others = members.keys() - {name_key, "type", "id", "tool_call_id", "index"}
    return WrittenCall(name, value.text if others or not name_key else "", not value.whole)


def describes_a_tool(members: dict[str, str]) -> bool:
    """Return whether the arguments of an object are a JSON schema. Such an object describes a tool and is no call."""
    if members.get("function", "").startswith("{"):
        members = read_first_value(members["function"]).members
    given = next((members[key] for key in ARGUMENTS_KEYS if members.get(key, "").startswith("{")), "")
    schema = read_first_value(given).members if given else {}
    return decode_string(schema.get("type", "")) == "object" and schema.get("properties", "").startswith("{")


def _is_truncated(value: Value, arguments: str, *, cut_off: bool) -> bool:
    return not value.whole and (cut_off or not is_complete_object(arguments))


def is_complete_object(written: str) -> bool:
    """Return whether the text is one complete object."""
    if not written.startswith("{"):
        return False
    value = read_first_value(written)
    return value.whole and len(value.text) == len(written)


def is_json(text: str, *, strict: bool = True) -> bool:
    """Return whether `text` is JSON. Without `strict`, its strings may contain control characters."""
    try:
        json.loads(text, strict=strict)
    except (ValueError, RecursionError):
        return False
    return True


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
        calls.append(build_call(value, keyed=keyed, cut_off=buffer.is_at_end()))
        if not value.whole:
            return calls
