"""JSON in running text: where a value ends, and the calls that stand in it. Read forward, each character once.

Nothing here decodes arguments: they are cut out of the text to the letter, so that what is
stored is what the model wrote, and mending is left to one place. A value that is not closed is
reported as such and never completed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from callboard_formats.syntax import Watcher, WrittenCall
from callboard_formats.tape import Reading, Tape, read_now

NAME_KEYS = ("name", "tool", "tool_name", "function_name", "function")
ARGUMENTS_KEYS = ("arguments", "parameters", "args", "params")

_OUTSIDE = regex.compile(r"[{}\[\]:,\"]|(?<=[{\[,:]\s{0,8})'|[<\[]|\n")
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

    def __init__(self, tape: Tape, watcher: Watcher | None, name: str) -> None:
        self._tape = tape
        self._watcher = watcher
        self._name = name
        self._at: int | None = None

    def begin(self, place: int, name: str = "") -> None:
        self._name = name or self._name
        self._at = place if self._watcher and self._name else None

    def up_to(self, end: int) -> None:
        if self._at is not None and self._watcher and end > self._at:
            self._watcher.arguments(self._name, self._tape.cut(self._at, end))
            self._at = end

    def end(self, end: int) -> None:
        self.up_to(end)
        self._at = None


def read_value(  # noqa: C901 - one state of a scanner is read beside the other
    tape: Tape,
    end: "regex.Pattern[str]" = _NEVER,
    watcher: Watcher | None = None,
    name: str = "",
    depth_limit: int | None = None,
) -> Reading[Value]:
    """Read the object or array whose bracket stands at `tape.at`.

    `end` is what closes the call that it belongs to: outside of strings it shows that brackets are missing,
    and in a string that no JSON follows, that a quotation mark is. With a `watcher` arguments are shown as
    they come: those of an object that names its tool first, or with `name` the object itself.
    """
    start = tape.keep()
    members: dict[str, str] = {}
    depth = 0
    key: str | None = None
    value_from: int | None = None
    named = ""
    doubled = False
    shown = _Shown(tape, watcher, name)
    if name:
        shown.begin(start)

    def member(place: int) -> None:
        nonlocal key, value_from, named, doubled
        if key is not None and value_from is not None:
            doubled = doubled or key in members
            members[key] = tape.cut(value_from, place).strip()
            if key in NAME_KEYS and not named and not members[key].startswith("{"):
                named = plain(members[key])
            if not name:
                shown.end(place)
        key = value_from = None

    def unfinished(*, whole: bool = False, too_deep: bool = False) -> Value:
        member(tape.at)
        shown.end(tape.at)
        return Value(tape.cut(start, tape.at), whole, members, too_deep, doubled)

    while True:
        mark = yield from _find(tape, _OUTSIDE, shown)
        if mark is None:
            return unfinished()
        place = tape.at
        match mark:
            case "{" | "[":
                if mark == "[" and (yield from tape.match(end)):
                    return unfinished()
                if depth == 1 and not name and mark == "{" and key in ARGUMENTS_KEYS and named and value_from:
                    shown.begin(place, named)
                depth += 1
                tape.at += 1
                if depth_limit is not None and depth > depth_limit:
                    return unfinished(too_deep=True)
            case "}" | "]":
                depth -= 1
                if depth == 0:
                    member(place)
                    tape.at += 1
                    shown.end(tape.at)
                    return Value(tape.cut(start, tape.at), True, members, doubled=doubled)
                tape.at += 1
            case ":":
                tape.at += 1
                if depth == 1 and key is not None and value_from is None:
                    value_from = tape.at
            case ",":
                if depth == 1:
                    member(place)
                tape.at += 1
            case '"' | "'":
                tape.at += 1
                closed = yield from _string(tape, _IN_DOUBLE if mark == '"' else _IN_SINGLE, shown)
                if not closed:
                    return unfinished()
                string_end = tape.at
                if tape.is_at_end():
                    shown.up_to(string_end)
                if depth == 1 and value_from is None:
                    key = tape.cut(place + 1, string_end - 1)
                if (torn := (yield from _torn(tape, place, string_end, end))) is not None:
                    # Of the call all is told that was shown, but the answer goes on behind its marker.
                    tape.at = string_end
                    value = unfinished()
                    tape.rewind(torn)
                    return value
            case _:
                if (yield from tape.match(end)):
                    return unfinished()
                tape.at += 1


def _find(tape: Tape, pattern: "regex.Pattern[str]", shown: _Shown) -> Reading[str | None]:
    """Move to the next character that `pattern` matches and return it, showing what was passed."""
    searching = tape.find(pattern)
    while True:
        try:
            next(searching)
        except StopIteration as done:
            found: regex.Match[str] | None = done.value
            return found[0] if found else None
        shown.up_to(tape.at)
        yield


def _string(tape: Tape, marks: "regex.Pattern[str]", shown: _Shown) -> Reading[bool]:
    """Move behind the quotation mark that ends a string; return False where the text ends before it."""
    while True:
        mark = yield from _find(tape, marks, shown)
        if mark is None:
            return False
        if mark != "\\":
            tape.at += 1
            return True
        # What a backslash stands before is no mark; it may not have come yet.
        while tape.at + 1 >= tape.end:
            if tape.final:
                tape.at = tape.end
                return False
            yield
        tape.at += 2


_GOES_ON = frozenset(',}]:"')


def _torn(tape: Tape, start: int, string_end: int, end: "regex.Pattern[str]") -> Reading[int | None]:
    """Return where `end` stands within a string that no JSON follows: its quotation mark was forgotten."""
    if end is _NEVER:
        return None
    yield from tape.space()
    following = yield from tape.peek()
    if following in _GOES_ON:
        return None
    found = end.search(tape.cut(start, string_end))
    return start + found.start() if found else None


def value_of(text: str) -> Value:
    """Return the object or array that `text` begins with."""
    return read_now(read_value(Tape(text, final=True)))


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


def call_in(value: Value, *, keyed: bool = False) -> WrittenCall:
    """Return the call that an object in an explicit call block stands for.

    Shapes: `{"name", "arguments"}`, its other spellings, `{"function": {"name", "arguments"}}`, and where
    they are `keyed`, `{name: arguments}`. A name that is missing is "", and where no arguments are named
    although other members stand there, the whole object is the arguments: what cannot be read is refused
    further on with the text that was written, and never run with nothing.
    """
    members = value.members
    if value.doubled:
        name = next((plain(members[key]) for key in NAME_KEYS if key in members), "")
        return WrittenCall(name, value.text, not value.whole)
    if keyed and len(members) == 1:
        ((name, arguments),) = members.items()
        return WrittenCall(name, arguments, not value.whole and not is_whole(arguments))
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
        truncated = not value.whole and not is_whole(arguments)
        return WrittenCall(name, arguments, truncated)
    others = members.keys() - {name_key, "type", "id", "tool_call_id", "index"}
    return WrittenCall(name, value.text if others or not name_key else "", not value.whole)


def is_whole(written: str) -> bool:
    """Return whether nothing is missing in an object, though what holds it is not closed."""
    if not written.startswith("{"):
        return False
    value = value_of(written)
    return value.whole and len(value.text) == len(written)


_BEFORE_FIRST = regex.compile(r"[\s\[]")
_BETWEEN = regex.compile(r"[\s,;]")


def read_calls(
    tape: Tape, end: "regex.Pattern[str]", watcher: Watcher | None = None, *, keyed: bool = False
) -> Reading[Sequence[WrittenCall]]:
    """Read the calls of an array of objects, or of objects one after another, and move behind the last bracket."""
    calls: list[WrittenCall] = []
    in_array = (yield from tape.peek()) == "["
    while True:
        while (yield from tape.take(_BETWEEN if calls else _BEFORE_FIRST)):
            pass
        following = yield from tape.peek()
        if following == "]" and in_array:
            tape.at += 1
            in_array = False
            return calls
        if following != "{":
            return calls
        value = yield from read_value(tape, end, watcher if not calls else None)
        calls.append(call_in(value, keyed=keyed))
        if not value.whole:
            return calls
