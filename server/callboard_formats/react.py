"""ReAct: a thought, an action, its input; the model stops where the observation would come.

    Thought: I should look it up.
    Action: search
    Action Input: {"query": "storms"}

    Thought: I now know the answer.
    Final Answer: It will rain.

After Yao et al., "ReAct" (arXiv 2210.03629), in the form that LangChain's `ReActSingleInputOutputParser`
and JSON agents, Qwen's `qwen-agent` and LlamaIndex gave it. Tolerated: markers in bold, back-ticks
or as headings, `Tool:` and `Function:`, everything on one line, `Action: search({"query": …})`,
`Action: search[storms]`, `Action: search {…}`, JSON in a code fence with or without a marker.

Anybody may write "Action:". A call has a known tool's name and arguments, or, at the beginning
of a line, both markers and an object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import regex

from callboard_formats.json_text import NAME_KEYS, call_in, plain, read_value
from callboard_formats.names import is_tool_name, resolve_name
from callboard_formats.python import Brackets, calls_in_source, read_brackets
from callboard_formats.syntax import END_OF_TURN, Spot, Tags, Watcher, WrittenCall
from callboard_formats.tape import Reading, Tape

Items = Sequence[WrittenCall | str] | None

MAX_NAME_WORDS = 7
MAX_DEPTH = 50
FINAL_ANSWER = "Final Answer"

_BEFORE = ("**", "*", "__", "`", "# ", "## ", "### ", "#### ", "# **", "## **", "### **", "- ", "- **", "> ")
_AFTER = {"**": "**", "*": "*", "__": "__", "`": "`", "# **": "**", "## **": "**", "### **": "**", "- **": "**"}


def _markers(word: str) -> tuple[str, ...]:
    """Return `word` as a whole marker, colon included, in the ways that models write it."""
    plain_ones = (f"{word}:", f"{word} :", *(f"{before}{word}:" for before in _BEFORE))
    closed = ((f"{before}{word}:{after}", f"{before}{word}{after}:") for before, after in _AFTER.items())
    return (*plain_ones, *(one for pair in closed for one in pair))


_CALL_WORDS = ("action", "tool", "function")
_ANSWERS = _markers("final answer")
_THOUGHTS = _markers("thought")
_OBSERVATIONS = _markers("observation")
_DECORATED = r"[*_`#> -]{0,7}"

_ANSWER = regex.compile(r"[*_`#> -]{0,7}final answer[*_` ]{0,4}:[*_`]{0,4}", regex.IGNORECASE)
_HEAD = regex.compile(_DECORATED + r"(?:action|tool|function)(?: name)?[*_`]{0,3}[ \t]?:", regex.IGNORECASE)
_INPUT = regex.compile(
    _DECORATED + r"(?:(?:action|tool|function)[ _])?(?:input|arguments?|args|parameters?)[*_`]{0,3}[ \t]?:",
    regex.IGNORECASE,
)
_NAME_END = regex.compile(r"\r?[\n({\[]|[ \t,.;][ \t]{0,9}(?=" + _INPUT.pattern + ")", regex.IGNORECASE)
# Back-ticks and quotation marks around it are taken off.
_WORDS = r"(?P<words>[\w.\- \"'*`:/\]]{0,64}?)"
_NAMED_UP_TO = regex.compile(f"{_WORDS}(?P<end>{_NAME_END.pattern})", regex.IGNORECASE)
_NAMED_AT_END = regex.compile(f"{_WORDS}(?P<end>)\\s*\\Z", regex.IGNORECASE)
_NO_TOOL = regex.compile(r"(?:none|n/?a|no action|no tool)(?: (?:needed|required|necessary))?\.?", regex.IGNORECASE)
_NO_INPUT = regex.compile(r"(?:none|n/a)\.?", regex.IGNORECASE)
_MARKER = regex.compile(
    r"\n[ \t]{0,9}[*_`#>-]{0,6} ?(?:observation|thought|final answer|action|tool|function)[*_`]{0,3} ?:",
    regex.IGNORECASE,
)
_FENCE = regex.compile(
    r"```[ \t]{0,4}(?:json5?|javascript|tool_calls?|tool|action|text|plaintext)?[ \t]{0,4}\r?\n(?=\s{0,99}\S)",
    regex.IGNORECASE,
)
_FENCE_END = regex.compile(r"\s{0,99}```[ \t]{0,9}(?=[\r\n])")
_FENCE_END_OF_ALL = regex.compile(r"\s{0,99}```[ \t]{0,9}\Z")
_OBJECT = regex.compile(
    r"\[?\s{0,99}\{\s{0,99}\"(?:name|tool|tool_name|function|action|type|id|arguments|parameters|action_input)\"\s{0,9}:"
)
_NAMED = regex.compile(
    r"\[?\s{0,99}\{\s{0,99}\"(?:name|tool|tool_name|function|action)\"\s{0,9}:\s{0,9}\"([^\"\\]{0,200})\""
)
_SCAFFOLD = regex.compile(r"[*_`#> -]{0,7}(?:thought|action|tool|function)[*_`]{0,3} ?:", regex.IGNORECASE)
_LINE = regex.compile(r"\n")
_ENDS_OF_TURN = regex.compile(rf"(?:\s{{0,9}}+{END_OF_TURN.pattern})+\s{{0,9}}\Z", regex.IGNORECASE)
_BLANK_LINE = regex.compile(r"\n[ \t\r]*\n")
_ANY_FENCE = regex.compile(r"```[ \t]{0,4}[\w+-]{0,20}[ \t]{0,4}\r?\n")
_FENCE_CLOSES = regex.compile(r"\r?\n[ \t]{0,9}```")
_BEHIND_FENCE = regex.compile(
    rf"[ \t]{{0,9}}(?:\r?\n\s{{0,99}})?{_MARKER.pattern}|{END_OF_TURN.pattern}", regex.IGNORECASE
)
_EMPHASIS = regex.compile(r"[#> -]{0,7}(\*{1,2}|_{1,2}|`)")
_BLANKS = regex.compile(r"[*_`\"'\[]{0,6}")
_CLOSING = regex.compile(r"[)\]]")


@dataclass(frozen=True)
class React:
    """The syntax; `leaked` is what a model writes that was not asked for it, so it is taken less easily.

    Then only a whole call is one, a fence of JSON must be the answer's end, and a thought is
    one only where the answer begins with it.
    """

    leaked: bool = False

    name = "react"
    markers = ()
    stops = ("\nObservation:", "\n**Observation", "\n`Observation", "\n# Observation")

    @property
    def openers(self) -> Sequence[str]:
        """The markers of an action, plain ones with their colon, and the fence of JSON."""
        plain_ones = [f"{word}{colon}" for word in _CALL_WORDS for colon in (":", " :")]
        decorated = [f"{before}{word}" for before, word in product(_BEFORE, _CALL_WORDS)]
        return ["```", *plain_ones, *decorated, *(() if self.leaked else _ANSWERS)]

    @property
    def reasoning(self) -> Sequence[Tags]:
        """Thoughts, and observations that no tool made, up to the next action or the answer."""
        openers = _THOUGHTS if self.leaked else (*_THOUGHTS, *_OBSERVATIONS)
        closers = ("Final Answer:", "**Final Answer:**", "**Final Answer**:")
        return [
            Tags(opener, closer, first=self.leaked, until_call=True, is_thought=opener in _THOUGHTS)
            for opener, closer in product(openers, closers)
        ]

    def begins_answer(self, block: str) -> bool:
        """Return whether the block is the marker of the final answer."""
        return _ANSWER.fullmatch(block) is not None

    def read(self, tape: Tape, spot: Spot, watcher: Watcher) -> Reading[Items]:
        """Read an action with its input, a fence of calls, or the marker of the final answer."""
        return (yield from _Action(tape, spot, watcher, leaked=self.leaked).read())


@dataclass(frozen=True, slots=True)
class _Label:
    """A label up to its colon, and the marks of emphasis that are open behind it."""

    text: str
    opened: str


class _Action:
    """The reading of one action."""

    def __init__(self, tape: Tape, spot: Spot, watcher: Watcher, *, leaked: bool) -> None:
        self._tape = tape
        self._spot = spot
        self._known = spot.schemas
        self._watcher = watcher
        self._leaked = leaked
        self._around = ""
        """The marks that the label of the input stands in together with the input: `**Action Input: …**`."""

    def read(self) -> Reading[Items]:
        tape = self._tape
        if not self._leaked and self._spot.line_start and (yield from tape.take(_ANSWER)):
            return []
        if self._spot.answering and not self._leaked:
            return None
        if (yield from tape.match(_FENCE)):
            return (yield from self._fenced()) if self._spot.line_start else None
        return (yield from self._action())

    def _label(self, pattern: "regex.Pattern[str]") -> "Reading[_Label | None]":
        """Read a label up to its colon, and behind that the marks that it began with."""
        tape = self._tape
        found = yield from tape.take(pattern)
        if found is None:
            return None
        marks = _EMPHASIS.match(found[0])
        opened = marks[1] if marks and not found[0].removesuffix(":").rstrip().endswith(marks[1]) else ""
        at = tape.at
        while opened and (yield from tape.peek()) in opened and tape.at < at + len(opened):
            tape.at += 1
        return _Label(found[0], "" if tape.at > at else opened)

    def _action(self) -> Reading[Items]:
        """Read an action whose marker stands here."""
        tape = self._tape
        head = yield from self._label(_HEAD)
        if head is None or (head.text[0] == "`" and not self._spot.line_start):
            return None
        behind = tape.keep()
        yield from tape.space()
        following = yield from tape.peek()
        if following == "{":
            return (yield from self._objects(fenced=False))
        if following == "`" and (yield from tape.take(_FENCE)):
            yield from tape.space()
            return (yield from self._objects(fenced=True))
        if not following or "\n" in tape.cut(behind, tape.at):
            return None
        return (yield from self._named())

    def _named(self) -> Reading[Items]:
        """Read what stands behind the marker, beginning with a tool's name."""
        tape = self._tape
        yield from tape.take(_BLANKS)
        named = yield from tape.match(_NAMED_UP_TO)
        if named is None and tape.final:
            named = yield from tape.match(_NAMED_AT_END)
        if named is None:
            return None
        words = named["words"]
        end = named["end"]
        tape.at += len(words)
        name = words.strip(" \t\r*_`\"'].:,;")
        if len(words.split()) > MAX_NAME_WORDS:
            return None
        at_line_start = self._spot.line_start
        if _NO_TOOL.fullmatch(name) and at_line_start and not self._leaked:
            return (yield from self._no_tool())
        if not name or not (at_line_start or resolve_name(name, self._known)):
            return None
        return (yield from self._input(name, end))

    def _input(self, name: str, delimiter: str) -> Reading[Items]:
        tape = self._tape
        is_tool = is_tool_name(name, self._known)
        name_end = tape.at
        if delimiter in ("(", "["):
            return (yield from self._in_brackets(name, delimiter)) if is_tool else None
        if delimiter not in ("{", "\n", "\r\n", ""):
            tape.at += len(delimiter)
        yield from tape.space()
        if label := (yield from self._label(_INPUT)):
            behind = tape.at
            self._around = label.opened
            yield from tape.space()
            return (yield from self._written(name, behind, sure=is_tool))
        following = yield from tape.peek()
        if following == "{":
            return (yield from self._written(name, tape.at, sure=is_tool)) if is_tool else None
        if following == "`" and is_tool and (yield from tape.match(_FENCE)):
            return (yield from self._written(name, tape.at, sure=True))
        alone = self._spot.line_start and not self._leaked and resolve_name(name, self._known)
        ends_in_name = name_end == tape.end
        tape.rewind(name_end)
        return [WrittenCall(name, "", truncated=ends_in_name)] if alone else None

    def _written(self, name: str, behind: int, *, sure: bool) -> Reading[Items]:
        """Read the input that begins here: an object or bare text, perhaps in a fence."""
        tape = self._tape
        following = yield from tape.peek()
        if not following:
            return [WrittenCall(name, "")] if sure else None
        fence_at = tape.keep()
        fenced = False
        if following == "`":
            fenced = (yield from tape.take(_FENCE)) is not None
            if fenced:
                yield from tape.space()
                following = yield from tape.peek()
        if following == "{":
            resolved = resolve_name(name, self._known)
            value = yield from read_value(tape, _MARKER, self._watcher, resolved.name if resolved else "")
            if fenced and value.whole:
                yield from self._fence_end()
            elif (yield from tape.peek()) == "`" and not fenced:
                tape.at += 1
            return [WrittenCall(name, value.text.strip(), truncated=not value.whole)]
        if not sure:
            return None
        tape.rewind(fence_at)
        if (yield from tape.take(_ANY_FENCE)):
            return (yield from self._words_in_fence(name))
        return (yield from self._words(name, behind))

    def _words(self, name: str, behind: int) -> Reading[Items]:
        """Read bare text up to the next marker, or the end; `behind` is the end of the input's own marker."""
        tape = self._tape
        start = tape.keep()
        tape.rewind(max(behind, start - 1))
        if (yield from tape.match(_MARKER)):
            return [WrittenCall(name, "")]
        tape.at = start
        following = yield from tape.find(_MARKER)
        words = _ENDS_OF_TURN.sub("", tape.cut(start, tape.at)).strip()
        if self._around and words.endswith(self._around):
            words = words.removesuffix(self._around).rstrip()
        if _NO_INPUT.fullmatch(words):
            return [WrittenCall(name, "")]
        # Behind a blank line the model may have gone on to speak: then nobody knows where the input ends.
        is_clear = not _BLANK_LINE.search(words)
        return [WrittenCall(name, words, truncated=following is None and _is_cut_off(words), words=is_clear)]

    def _words_in_fence(self, name: str) -> Reading[Items]:
        """Read bare text up to the end of the fence that it stands in."""
        tape = self._tape
        start = tape.keep()
        while closed := (yield from tape.find(_FENCE_CLOSES)):
            place = tape.at
            tape.at += len(closed[0])
            behind = tape.at
            yield from tape.space()
            tape.rewind(behind if (yield from tape.peek()) else tape.at)
            if tape.is_at_end() or (yield from tape.match(_BEHIND_FENCE)):
                return [WrittenCall(name, tape.cut(start, place), words=True)]
        return [WrittenCall(name, tape.cut(start, tape.at), truncated=True, words=True)]

    def _in_brackets(self, name: str, bracket: str) -> Reading[Items]:
        """Read `search({"query": …})`, `search(query="…")` or `search[storms]`."""
        tape = self._tape
        opening = tape.keep()
        tape.at += 1
        yield from tape.space()
        if (yield from tape.peek()) == "{":
            resolved = resolve_name(name, self._known)
            value = yield from read_value(tape, _MARKER, self._watcher, resolved.name if resolved else "")
            if not value.whole:
                return [WrittenCall(name, value.text, truncated=True)]
            yield from tape.space()
            yield from tape.take(_CLOSING)
            return [WrittenCall(name, value.text)]
        tape.rewind(opening)
        if bracket == "[":
            return (yield from self._in_square_brackets(name))
        became = yield from read_brackets(tape, MAX_DEPTH)
        source = tape.cut(opening, tape.at)
        if became is not Brackets.CLOSED or _MARKER.search(source):
            return None
        written = source[1:-1].strip()
        if not written:
            return [WrittenCall(name, "")]
        calls = calls_in_source(f"call({written})")
        return [WrittenCall(name, calls[0].arguments, words=calls[0].words)] if calls else None

    def _in_square_brackets(self, name: str) -> Reading[Items]:
        tape = self._tape
        start = tape.at + 1
        end = yield from tape.find(_CLOSING_OR_LINE)
        if end is None or end[0] != "]":
            return None
        tape.at += 1
        return [WrittenCall(name, tape.cut(start, tape.at - 1).strip(), words=True)]

    def _fenced(self) -> Reading[Items]:
        """Read a fence that holds calls and nothing else."""
        tape = self._tape
        start = tape.keep()
        yield from tape.take(_FENCE)
        yield from tape.space()
        if not self._leaked and (yield from tape.match(_SCAFFOLD)):
            return []
        if not (yield from tape.match(_OBJECT)):
            return None
        named = yield from tape.match(_NAMED)
        if named and not is_tool_name(named[1], self._known) and named[1] != FINAL_ANSWER:
            return None
        items = yield from self._objects(fenced=True)
        if items and self._leaked and not (yield from self._is_last()):
            return [tape.cut(start, tape.at)]
        return items

    def _objects(self, *, fenced: bool) -> Reading[Items]:
        """Read objects that name their tool themselves."""
        tape = self._tape
        start = tape.keep()
        if not (yield from tape.match(_OBJECT)):
            return None
        items: list[WrittenCall | str] = []
        end = start
        while True:
            while (yield from tape.take(_BETWEEN)):
                pass
            if (yield from tape.peek()) != "{":
                break
            value = yield from read_value(tape, _MARKER)
            items.append(_call(value.members, call_in(value), whole=value.whole))
            end = tape.at
            if not value.whole or not fenced:
                break
        if fenced and not (yield from self._fence_end()):
            yield from tape.space()
            if (yield from tape.peek()) and value.whole:
                return None
        elif not fenced:
            tape.rewind(end)
        if items and all(isinstance(one, str) or is_tool_name(one.name, self._known) for one in items):
            return items
        return None

    def _fence_end(self) -> Reading[bool]:
        tape = self._tape
        if (yield from tape.take(_FENCE_END)):
            return True
        return tape.final and (yield from tape.take(_FENCE_END_OF_ALL)) is not None

    def _is_last(self) -> Reading[bool]:
        """Return whether nothing but other calls follows: JSON that the model goes on to speak about is an example."""
        tape = self._tape
        end = tape.at
        yield from tape.space()
        following = yield from tape.peek()
        scaffold = yield from tape.match(_SCAFFOLD)
        tape.rewind(end)
        return following in ("", "`") or scaffold is not None

    def _no_tool(self) -> Reading[Items]:
        """Read `Action: None`, and its input: no call, and nothing for the user."""
        tape = self._tape
        end = tape.at
        yield from tape.space()
        if (yield from tape.take(_INPUT)):
            yield from tape.find(_LINE)
        else:
            tape.rewind(end)
        return []


_LABELS = ("Observation:", "Thought:", "Final Answer:", "Action:", "Action Input:")
_QUOTES_AROUND = ("```", '"""', "'''", "`", '"', "'")


def _is_cut_off(words: str) -> bool:
    """Return whether bare text ends in half of a label, or the quotation mark that it begins with is never closed."""
    *_, last = words.split("\n")
    if "\n" in words and any(label.startswith(last.strip("*_ ")) for label in _LABELS):
        return True
    mark = next((one for one in _QUOTES_AROUND if words.startswith(one)), "")
    return bool(mark) and mark not in words[len(mark) :]


_BETWEEN = regex.compile(r"[\s\[\],]")
_CLOSING_OR_LINE = regex.compile(r"[\]\n]")


def _call(members: dict[str, str], call: WrittenCall, *, whole: bool) -> WrittenCall | str:
    """Return the call of an object that names its tool as `name`, or as LangChain's `action`."""
    if "action" not in members or any(key in members for key in NAME_KEYS):
        return call
    name = plain(members["action"])
    given = next((members[key] for key in ("action_input", "input", "arguments", "args") if key in members), "")
    if name == FINAL_ANSWER:
        return plain(given)
    return WrittenCall(name, given, truncated=not whole, words=True)
