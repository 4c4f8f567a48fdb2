"""Reads ReAct: a thought, an action and its input. The model stops before the observation.

    Thought: I should look it up.
    Action: search
    Action Input: {"query": "storms"}

    Thought: I now know the answer.
    Final Answer: It will rain.

The form is from Yao et al., "ReAct" (arXiv 2210.03629), LangChain's `ReActSingleInputOutputParser` and JSON agents,
Qwen's `qwen-agent` and LlamaIndex. These variations are accepted: labels in bold, in back-ticks, as headings or with
numbers; values on the next line; `Tool:` and `Function:`; everything on one line; `Action: search({"query": …})`,
`Action: search[storms]`, `Action: search {…}`; JSON in a code fence with or without a label; `Action: Final Answer`;
and the paper's `Action: Finish[…]`.

"Action:" also occurs in ordinary text. A call needs a known tool's name and arguments, or both labels at the beginning
of a line. If the model was not asked for ReAct, text behind a call shows that the call is only mentioned. Otherwise,
the text shows that only if the call does not begin its line, or if an unfinished sentence precedes the call. If the
text continues a sentence, the call is refused. Text behind a fence always shows that the calls in the fence are only
mentioned.

An input may be bare text. It ends before more of the structure: a label on a separate line, tokens that end the turn,
or the end of the answer. In a fence, it ends with a closing fence that one of these follows. If the end is ambiguous,
the call is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import regex

from callboard_formats.json_text import NAME_KEYS, Value, build_call, decode_string, describes_a_tool, read_value
from callboard_formats.names import is_tool_name, resolve_name
from callboard_formats.python import Brackets, parse_calls, read_brackets
from callboard_formats.quotation import is_introduced_as_example
from callboard_formats.schemas import properties_of
from callboard_formats.syntax import (
    END_OF_TURN,
    BlockContext,
    BlockItems,
    Syntax,
    Tags,
    TextKind,
    WrittenCall,
)
from callboard_formats.text_buffer import Reading, TextBuffer
from callboard_formats.unmarked import MAX_TOGETHER, Following, mark_truncated, read_following

Items = BlockItems | None

MAX_NAME_WORDS = 7
MAX_DEPTH = 50
FINAL_ANSWER = "Final Answer"

_BEFORE = ("**", "*", "__", "`", "# ", "## ", "### ", "#### ", "# **", "## **", "### **", "- ", "- **")
_AFTER = {"**": "**", "*": "*", "__": "__", "`": "`", "# **": "**", "## **": "**", "### **": "**", "- **": "**"}
_COLONS = (":", " :", "：")
_NUMBERS = range(1, 10)


def _spell_label(word: str) -> tuple[str, ...]:
    """Return the spellings of `word` as a label with a colon: plain, in bold, as a heading and so on."""
    plain_ones = (*(f"{word}{colon}" for colon in _COLONS), *(f"{before}{word}:" for before in _BEFORE))
    closed = ((f"{before}{word}:{after}", f"{before}{word}{after}:") for before, after in _AFTER.items())
    return (*plain_ones, *(one for pair in closed for one in pair))


def _spell_numbered_label(word: str) -> tuple[str, ...]:
    """Return the spellings of `word` as a label with a number, as in the paper: `Thought 1:`."""
    return tuple(
        f"{before}{word} {number}:{after}" for number in _NUMBERS for before, after in (("", ""), ("**", "**"))
    )


_CALL_WORDS = ("action", "tool", "function")
_ANSWERS = _spell_label("final answer")
_THOUGHTS = _spell_label("thought")
_OBSERVATIONS = (*_spell_label("observation"), *_spell_numbered_label("observation"))


def _make_label_pattern(words: str) -> str:
    """Return the pattern of a label: one of `words` with an optional number, its colon and its decoration.

    The pattern is greedy, so a match at the end of the text may grow (see `_Action._take`). Back-ticks and stars behind
    the colon belong to the label only if the label begins with back-ticks or stars.
    """
    word = rf"(?:{words})(?:[ \t]?[0-9]{{1,3}})?"
    line = r"(?:[#-][# -]{0,6})?"
    return line + "(?:" + "|".join((
        rf"[*_]{{1,3}}{word}[*_]{{0,3}}[ \t]?[:：][*_]{{0,3}}",
        rf"[*_]{{0,2}}`[*_]{{0,2}}{word}[*_`]{{0,3}}[ \t]?[:：][*_]{{0,2}}`?[*_]{{0,2}}",
        rf"{word}[ \t]?[:：]",
    )) + ")"  # fmt: skip


_ACTION_WORDS = "(?:action|tool|function)(?: name)?"
_INPUT_WORDS = "(?:(?:action|tool|function)[ _])?(?:input|arguments?|args|parameters?)"
_HEAD = regex.compile(_make_label_pattern(_ACTION_WORDS), regex.IGNORECASE)
_INPUT = regex.compile(_make_label_pattern(_INPUT_WORDS), regex.IGNORECASE)
_ANSWER = regex.compile(
    # Models that were trained for LangChain often write the final answer as a tool.
    rf"(?:{_HEAD.pattern}[ \t]{{0,9}}(?:\r?\n)?[*_`\"']{{0,3}}final answer[*_`\"'.]{{0,3}}\s{{1,9}}"
    rf"{_INPUT.pattern}|(?:{_HEAD.pattern}[ \t]{{0,9}})?{_make_label_pattern('final answer')})",
    regex.IGNORECASE,
)
_ANY_OR_INPUT_LABEL = regex.compile(
    _make_label_pattern(f"observation|thought|final answer|{_ACTION_WORDS}|{_INPUT_WORDS}"), regex.IGNORECASE
)
_STEP_LABEL = regex.compile(_make_label_pattern("thought|action|tool|function"), regex.IGNORECASE)
_ANY_LABEL = regex.compile(
    _make_label_pattern("observation|thought|final answer|action|tool|function"), regex.IGNORECASE
)
_MARKER = regex.compile(rf"\n[ \t]{{0,9}}{_ANY_LABEL.pattern}", regex.IGNORECASE)
"""A label at the beginning of a line, with which more of the structure begins."""

_NAME_END = regex.compile(r"\r?[\n({\[]|[ \t,.;][ \t]{0,9}(?=" + _INPUT.pattern + ")", regex.IGNORECASE)
# Back-ticks, quotation marks and angle brackets around the name are removed later.
_WORDS = r"(?P<words>[\w.\- \"'*`:/\]<>]{0,64}?)"
_NAMED_UP_TO = regex.compile(f"{_WORDS}(?P<end>{_NAME_END.pattern})", regex.IGNORECASE)
_NAMED_AT_END = regex.compile(f"{_WORDS}(?P<end>)\\s*\\Z", regex.IGNORECASE)
_NO_TOOL = regex.compile(r"(?:none|n/?a|no action|no tool)(?: (?:needed|required|necessary))?\.?", regex.IGNORECASE)
_NO_INPUT = regex.compile(r"(?:none|n/a)\.?", regex.IGNORECASE)
_FENCE = regex.compile(
    r"```[ \t]{0,4}(?:json5?|javascript|tool_calls?|tool|action|text|plaintext)?[ \t]{0,4}\r?\n(?=\s{0,99}\S)",
    regex.IGNORECASE,
)
_FENCE_END = regex.compile(r"\s{0,99}```[ \t]{0,9}(?=[\r\n])")
_CLOSING_FENCE = regex.compile(r"```[ \t]{0,9}(?:[\r\n]|\Z)")
_FENCE_END_OF_ALL = regex.compile(r"\s{0,99}```[ \t]{0,9}\Z")
_OBJECT = regex.compile(
    r"\[?\s{0,99}\{\s{0,99}\"(?:name|tool|tool_name|function|action|type|id|arguments|parameters|action_input)\"\s{0,9}:"
)
_NAMED = regex.compile(
    r"\[?\s{0,99}\{\s{0,99}\"(?:name|tool|tool_name|function|action)\"\s{0,9}:\s{0,9}\"([^\"\\]{0,200})\""
)
_LINE = regex.compile(r"\n")
_REST_OF_LINE = regex.compile(r"[^\n]{0,200}")
_BLANK_LINE = regex.compile(r"\n[ \t\r]*\n")
_ANY_FENCE = regex.compile(r"```[ \t]{0,4}[\w+-]{0,20}[ \t]{0,4}\r?\n")
_FENCE_CLOSES = regex.compile(r"\n[ \t]{0,9}```")
_LAST_FENCE_CLOSES = regex.compile(
    rf"\n[ \t]{{0,9}}```(?=[ \t]{{0,9}}(?:\s{{0,9}}{END_OF_TURN.pattern}){{0,3}}\s{{0,99}}?{_MARKER.pattern})",
    regex.IGNORECASE,
)
"""The end of a fence before more of the structure."""

_FENCE_LINE = regex.compile(r"\n[ \t]{0,9}```[ \t]*([^\s`]*)")
_LANGUAGE = regex.compile(r"(?:bash|sh|shell|python3?|py|sql|json|html|xml|javascript|js|text)\s")
_BEFORE_NAME = regex.compile(r"[*_`\"'\[<]{0,6}")
_REMARK = regex.compile(
    rf"[ \t]{{0,9}}\([^()\n]{{0,200}}\)[ \t,.;]{{0,9}}\r?\n(?=\s{{0,9}}{_INPUT.pattern})", regex.IGNORECASE
)
_BEFORE_OBJECT = regex.compile(r"`(?=\s{0,9}\{)")
_BEHIND_OBJECT = regex.compile(r"[*_`]{0,3}")
_MARKS = regex.compile(r"[*_`]+")
_WORD = regex.compile(r"[\w.-]+")
_LABEL_IN_LINE = regex.compile(r"(?<=\s)(?:Observation|Thought|Final Answer|Action(?: Input)?)[ \t]?[:：]")
_CLOSING = regex.compile(r"[)\]]")
_BETWEEN = regex.compile(r"[\s\[\],]")
_BRACKET_OR_LINE = regex.compile(r"[\[\]\n]|(?:action|tool|function)(?:[ \t]?[0-9])?[ \t]?[:：]", regex.IGNORECASE)
"""A bracket, or a sign that the bracket is not closed: the end of the line or another action."""

_LINE_ENDS = regex.compile(r"[ \t*_`.]{0,9}\r?\n")
_FINISHES = ("final answer", "final", "finish")


class React(Syntax):
    """The syntax of ReAct.

    `leaked` means that the model was not asked for ReAct. Then the rules are stricter: a call must be complete, only
    more of the structure may follow it, and a thought counts only at the beginning of the answer. Without `last`, the
    caller checks the text behind a call.
    """

    name = "react"
    stops = ("\nObservation:", "\n**Observation", "\n`Observation", "\n# Observation")
    answers = True

    def __init__(self, *, leaked: bool = False, last: bool = True) -> None:
        self._leaked = leaked
        self._last = last
        self.openers = _list_openers(leaked=leaked)
        self.reasoning = _list_tags(leaked=leaked)

    def begins_answer(self, block: str) -> bool:
        """Return whether the block is the marker of the final answer."""
        return _ANSWER.fullmatch(block) is not None

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[Items]:
        """Read an action with its input, a fence of calls, or the marker of the final answer."""
        return (yield from _Action(buffer, context, leaked=self._leaked, last=self._last).read())


def _list_openers(*, leaked: bool) -> list[str]:
    """Return the labels of an action, and the fence of JSON calls. Plain labels include their colon."""
    plain_ones = [f"{word}{colon}" for word in _CALL_WORDS for colon in _COLONS]
    decorated = [f"{before}{word}" for before, word in product(_BEFORE, _CALL_WORDS)]
    numbered = [f"action {number}" for number in _NUMBERS]
    return ["```", *plain_ones, *decorated, *(() if leaked else (*numbered, *_ANSWERS))]


def _list_tags(*, leaked: bool) -> list[Tags]:
    """Return the tags of thoughts and of imagined observations, which end at the final answer or at any block."""
    closers = ("Final Answer:", "Final Answer：", "**Final Answer:**", "**Final Answer**:")
    thoughts = [
        Tags(opener, closer, TextKind.STEP, first=leaked)
        for opener, closer in product(_THOUGHTS if leaked else (*_THOUGHTS, *_spell_numbered_label("thought")), closers)
    ]
    results = [Tags(*pair, TextKind.OBSERVATION) for pair in product(_OBSERVATIONS, closers)]
    return thoughts if leaked else [*thoughts, *results]


class _Action:
    """Reads one block: an action with its input, a fence of calls, or the marker of the final answer."""

    def __init__(self, buffer: TextBuffer, context: BlockContext, *, leaked: bool, last: bool) -> None:
        self._buffer = buffer
        self._context = context
        self._known = context.schemas
        # Text behind the call may show that it is only mentioned, so its arguments must not be shown while they are
        # read.
        self._watcher = None if leaked or context.is_introduced else context.watcher
        self._leaked = leaked
        self._last = last

    def read(self) -> Reading[Items]:
        buffer = self._buffer
        if not self._leaked and self._context.line_start and (yield from self._take(_ANSWER)):
            return []
        if self._context.answering:
            return None
        if (yield from buffer.match(_FENCE)):
            is_example = self._leaked and is_introduced_as_example(buffer)
            if is_example or not self._context.line_start:
                return None
            return (yield from self._read_fences())
        items = yield from self._read_action()
        calls = [item for item in items or () if isinstance(item, WrittenCall)]
        return (yield from self._check_following(calls)) if calls else items

    def _check_following(self, calls: Sequence[WrittenCall]) -> Reading[Items]:
        """Return the calls; None if the text behind them shows that they are only mentioned."""
        buffer = self._buffer
        counts_before_text = self._context.line_start and not (self._leaked and self._last)
        end = buffer.keep()
        yield from self._take(_BEHIND_OBJECT)
        follows = yield from self._read_kind_of_following()
        place = buffer.position
        buffer.rewind(end)
        if follows is Following.CUT:
            return calls if counts_before_text else (mark_truncated(calls) or None)
        if follows is not Following.TEXT or (counts_before_text and self._leaked):
            return calls
        if not counts_before_text or self._context.is_introduced:
            return None
        goes_on = buffer.cut(place, place + 1).islower()
        return [replace(call, broken=call.broken or goes_on) for call in calls]

    def _read_kind_of_following(self) -> Reading[Following]:
        """Move behind the white space behind a call, and return the kind of text that follows."""
        buffer = self._buffer
        yield from buffer.space()
        if (yield from buffer.match(_ANY_LABEL)) or (not self._leaked and (yield from buffer.match(_CLOSING_FENCE))):
            return Following.CALL
        if buffer.final and (label := buffer.cut_off(_ANY_LABEL)) and label[0]:
            return Following.CUT
        return (yield from read_following(buffer))

    def _take(self, pattern: "regex.Pattern[str]") -> Reading[str]:
        """Move behind the match of `pattern` here and return its text; "" without a match. Wait while it may grow."""
        buffer = self._buffer
        while True:
            found = yield from buffer.match(pattern)
            text = str(found[0]) if found else ""
            if found is None or buffer.final or buffer.position + len(text) < buffer.end:
                buffer.position += len(text)
                return text
            yield

    def _read_action(self) -> Reading[Items]:
        """Read an action whose label is at this position."""
        buffer = self._buffer
        head = yield from self._take(_HEAD)
        if not head or (head[0] == "`" and not self._context.line_start):
            return None
        behind = buffer.keep()
        yield from buffer.space()
        following = yield from buffer.peek()
        if following == "{":
            return (yield from self._read_objects(fenced=False))
        if following == "`" and (yield from buffer.take(_FENCE)):
            yield from buffer.space()
            return (yield from self._read_objects(fenced=True))
        on_next_line = "\n" in buffer.cut(behind, buffer.position)
        if not following or (on_next_line and not self._context.line_start):
            return None
        return (yield from self._read_named(on_next_line=on_next_line))

    def _read_named(self, *, on_next_line: bool) -> Reading[Items]:
        """Read the text behind the label, which begins with a tool's name."""
        buffer = self._buffer
        yield from self._take(_BEFORE_NAME)
        named = yield from buffer.match(_NAMED_UP_TO)
        if named is None and buffer.final:
            named = yield from buffer.match(_NAMED_AT_END)
        if named is None:
            return None
        words = named["words"]
        end = named["end"]
        buffer.position += len(words)
        name = words.strip(" \t\r*_`\"'].:,;<>")
        if len(words.split()) > MAX_NAME_WORDS:
            return None
        at_line_start = self._context.line_start
        if _NO_TOOL.fullmatch(name) and at_line_start and not self._leaked:
            return (yield from self._skip_no_tool())
        if not name or not (at_line_start or resolve_name(name, self._known)):
            return None
        return (yield from self._read_input(name, end, alone=not on_next_line))

    def _read_input(self, name: str, delimiter: str, *, alone: bool) -> Reading[Items]:
        """Read the input behind a tool's name. `alone` means that the name may be a call without an input."""
        buffer = self._buffer
        is_tool = is_tool_name(name, self._known)
        name_end = buffer.keep()
        if delimiter in ("(", "["):
            if not (yield from buffer.take(_REMARK)):
                return (yield from self._read_in_brackets(name, delimiter, is_tool=is_tool))
            alone = False
        elif delimiter not in ("{", "\n", "\r\n", ""):
            buffer.position += len(delimiter)
        yield from buffer.space()
        if label := (yield from self._take(_INPUT)):
            is_sure = is_tool or (self._context.line_start and not self._leaked)
            return (yield from self._read_input_value(name, sure=is_sure, mark=_find_unclosed_mark(label)))
        following = yield from buffer.peek()
        if is_tool and (following == "{" or (following == "`" and (yield from buffer.match(_FENCE)))):
            return (yield from self._read_input_value(name, sure=True))
        is_cut_label = buffer.final and bool(following) and buffer.cut_off(_INPUT) is not None
        alone = alone and self._context.line_start and (is_cut_label or not self._leaked)
        ends_in_name = name_end == buffer.end
        buffer.rewind(buffer.end if is_cut_label else name_end)
        is_call = alone and resolve_name(name, self._known) is not None
        return [WrittenCall(name, "", truncated=ends_in_name or is_cut_label)] if is_call else None

    def _read_input_value(self, name: str, *, sure: bool, mark: str = "") -> Reading[Items]:
        """Read the input here: an object or bare text, perhaps in a fence, and the closing `mark` of its label.

        Bare text is read only if this is certainly (`sure`) a call.
        """
        buffer = self._buffer
        start = buffer.keep()
        yield from buffer.space()
        fenced = (yield from buffer.peek()) == "`" and (yield from buffer.take(_FENCE)) is not None
        if fenced:
            yield from buffer.space()
        elif (yield from buffer.take(_BEFORE_OBJECT)):
            mark = "`"
            yield from buffer.space()
        following = yield from buffer.peek()
        if following == "{":
            value = yield from self._read_object(name)
            if fenced and value.whole:
                yield from self._take_fence_end()
            elif mark:
                yield from self._take(_BEHIND_OBJECT)
            return [WrittenCall(name, value.text.strip(), truncated=not value.whole)]
        if not sure:
            return None
        buffer.rewind(start)
        yield from buffer.space()
        if (yield from buffer.take(_ANY_FENCE)):
            return [(yield from self._read_words_in_fence(name))]
        buffer.rewind(start)
        return [(yield from self._read_words(name, mark))]

    def _read_object(self, name: str) -> Reading[Value]:
        """Read the object here. The watcher gets it while it is read, if this is certainly a call."""
        resolved = resolve_name(name, self._known) if self._context.line_start else None
        return (yield from read_value(self._buffer, _MARKER, self._watcher, resolved.name if resolved else ""))

    def _read_words(self, name: str, mark: str) -> Reading[WrittenCall]:
        """Read bare text up to the next label or the end."""
        buffer = self._buffer
        start = buffer.keep()
        following = yield from buffer.find(_MARKER)
        region = buffer.cut(start, buffer.position)
        cut_mark = _find_open_mark(region) if following is not None and _OF_CALL.search(following[0]) else ""
        if cut_mark:
            # The label may be a line of a quoted string: `printf "a\nAction: …"`. Then no call begins there.
            label = buffer.position
            if (yield from buffer.find(regex.compile(cut_mark))):
                following = yield from buffer.find(_MARKER)
            else:
                buffer.rewind(label)
            region = buffer.cut(start, buffer.position)
        words = _remove_end_tokens(region).strip()
        if following is None and not words and self._may_have_arguments(name):
            return WrittenCall(name, "", truncated=True)
        if following is None and (_ends_in_half_a_label(region) or (buffer.is_cut and _lacks_end_token(region))):
            return WrittenCall(name, words, truncated=True)
        if mark and words.endswith(mark[0]) and not words.endswith(mark):
            return WrittenCall(name, words, truncated=True)
        words = words.removesuffix(mark).rstrip()
        if _NO_INPUT.fullmatch(words):
            return WrittenCall(name, "")
        if words.startswith("```"):
            inner = words[3:-3]
            is_clear = words.endswith("```") and len(words) > len("``````") and "```" not in inner
            is_clear = is_clear and not _LANGUAGE.match(inner)
            words = inner.strip() if is_clear else words
        else:
            is_clear = not cut_mark and not _is_open_quotation(words)
        # Text behind a blank line may be the answer. Then the end of the input is unclear.
        is_result = following is not None and "observation" in following[0].lower()
        is_clear = is_clear and (is_result or not _BLANK_LINE.search(words))
        is_clear = is_clear and not END_OF_TURN.search(words) and not _LABEL_IN_LINE.search(words)
        is_clear = is_clear and self._context.line_start and (yield from self._is_structure(following))
        return WrittenCall(name, words, words=True, broken=not is_clear)

    def _may_have_arguments(self, name: str) -> bool:
        resolved = resolve_name(name, self._known)
        return resolved is not None and bool(properties_of(self._known[resolved.name]))

    def _is_structure(self, label: "regex.Match[str] | None") -> Reading[bool]:
        """Return whether the label here belongs to the structure, and is not a line of the input (`action: deploy`)."""
        buffer = self._buffer
        if label is None or not _OF_CALL.search(label[0]):
            return True
        place = buffer.position
        buffer.position += len(label[0])
        yield from self._take(_REST_OF_LINE)
        rest = buffer.cut(place + len(label[0]), buffer.position)
        buffer.rewind(place)
        word = _WORD.search(rest)
        name = rest.strip(" \t\r*_`\"'[].:,;<>")
        return any(
            _NO_TOOL.fullmatch(one) or one.lower() in _FINISHES or is_tool_name(one, self._known)
            for one in (name, word[0] if word else "")
        )

    def _read_words_in_fence(self, name: str) -> Reading[WrittenCall]:
        """Read bare text in a fence, up to the closing fence before more of the structure."""
        buffer = self._buffer
        start = buffer.position
        buffer.position -= 1
        closes = yield from buffer.find(_LAST_FENCE_CLOSES)
        body = buffer.cut(start - 1, buffer.position)
        if closes is not None:
            buffer.position += len(closes[0])
        else:
            is_cut = buffer.is_cut and _lacks_end_token(body)
            body, _, last = _remove_end_tokens(body).rstrip().rpartition("\n")
            if is_cut or last.strip(" \t") != "```":
                return WrittenCall(name, body + last, truncated=True)
        # A bare fence inside the text may be its real end. With an odd number of them it is not, because then the last
        # fence would be an opening fence, and no label follows an opening fence.
        fences = _FENCE_LINE.findall(body)
        is_clear = not fences or bool(fences[0]) or (closes is not None and len(fences) % 2 == 1)
        is_clear = is_clear and self._context.line_start
        return WrittenCall(name, body[1:].removesuffix("\r"), words=True, broken=not is_clear)

    def _read_in_brackets(self, name: str, bracket: str, *, is_tool: bool) -> Reading[Items]:
        """Read `search({"query": …})`, `search(query="…")`, `search[storms]`, or the paper's `Finish[…]`."""
        buffer = self._buffer
        if not is_tool:
            return (yield from self._read_finish()) if name.lower() == "finish" and bracket == "[" else None
        opening = buffer.keep()
        buffer.position += 1
        yield from buffer.space()
        if (yield from buffer.peek()) == "{":
            value = yield from self._read_object(name)
            if not value.whole:
                return [WrittenCall(name, value.text, truncated=True)]
            yield from buffer.space()
            yield from buffer.take(_CLOSING)
            return [WrittenCall(name, value.text)]
        buffer.rewind(opening)
        if bracket == "[":
            return (yield from self._read_in_square_brackets(name))
        became = yield from read_brackets(buffer, MAX_DEPTH)
        source = buffer.cut(opening, buffer.position)
        if became is not Brackets.CLOSED or _MARKER.search(source):
            return None
        written = source[1:-1].strip()
        calls = parse_calls(f"call({written})")
        return [WrittenCall(name, calls[0].arguments, words=calls[0].words)] if calls else None

    def _read_in_square_brackets(self, name: str) -> Reading[Items]:
        """Read text up to its closing bracket, which must end the line or precede more of the structure."""
        buffer = self._buffer
        buffer.position += 1
        start = buffer.position
        depth = 1
        while depth > 0:
            mark = yield from buffer.find(_BRACKET_OR_LINE)
            if mark is None or mark[0] not in "[]":
                return None
            buffer.position += 1
            depth += 1 if mark[0] == "[" else -1
        end = buffer.position - 1
        call = WrittenCall(name, buffer.cut(start, end).strip(), words=True)
        ends_line = yield from buffer.match(_LINE_ENDS)
        return [call] if ends_line else (yield from self._check_following([call]))

    def _read_finish(self) -> Reading[Items]:
        """Read the final answer in the square brackets of `Finish[…]`."""
        buffer = self._buffer
        if self._leaked or not self._context.line_start:
            return None
        start = buffer.position
        yield from buffer.find(_MARKER)
        answer = _remove_end_tokens(buffer.cut(start, buffer.position)).strip()
        return [answer[1:-1]] if answer.endswith("]") else None

    def _read_fences(self) -> Reading[Items]:
        """Read fences that contain only calls."""
        buffer = self._buffer
        start = buffer.keep()
        yield from buffer.take(_FENCE)
        yield from buffer.space()
        if not self._leaked and (yield from buffer.match(_STEP_LABEL)):
            return None if (yield from self._is_example()) else []
        if not (yield from buffer.match(_OBJECT)):
            return None
        named = yield from buffer.match(_NAMED)
        if named and not is_tool_name(named[1], self._known) and named[1] != FINAL_ANSWER:
            return None
        items = list((yield from self._read_objects(fenced=True)) or ())
        for _ in range(MAX_TOGETHER):
            more = (yield from self._read_next_fence()) if items else None
            items += more or ()
            if not more:
                break
        if not items:
            return None
        if not self._leaked and (yield from self._has_answer_behind()):
            return None
        end = buffer.keep()
        follows = yield from self._read_kind_of_following()
        buffer.rewind(end)
        if follows is Following.CUT:
            calls = [item for item in items if isinstance(item, WrittenCall)]
            return mark_truncated(calls) or [buffer.cut(start, end)]
        return [buffer.cut(start, end)] if follows is Following.TEXT else items

    def _read_next_fence(self) -> Reading[Items]:
        """Read the next fence of calls, if one follows."""
        buffer = self._buffer
        end = buffer.keep()
        yield from buffer.space()
        items: Items = None
        if (yield from buffer.take(_FENCE)):
            yield from buffer.space()
            items = yield from self._read_objects(fenced=True)
        if not items:
            buffer.rewind(end)
        return items

    def _read_objects(self, *, fenced: bool) -> Reading[Items]:
        """Read objects that contain the name of their tool."""
        buffer = self._buffer
        start = buffer.keep()
        if not (yield from buffer.match(_OBJECT)):
            return None
        items: list[WrittenCall | str] = []
        end = start
        while True:
            while (yield from buffer.take(_BETWEEN)):
                pass
            if (yield from buffer.peek()) != "{":
                break
            value = yield from read_value(buffer, _MARKER)
            items.append(_build_call(value, cut_off=buffer.is_at_end()))
            end = buffer.position
            if not value.whole or not fenced:
                break
        if fenced and not (yield from self._take_fence_end()):
            yield from buffer.space()
            if (yield from buffer.peek()) and value.whole:
                return None
        elif not fenced:
            buffer.rewind(end)
        if items and all(isinstance(one, str) or is_tool_name(one.name, self._known) for one in items):
            return items
        return None

    def _is_example(self) -> Reading[bool]:
        """Return whether text or the final answer follows the fence around this position, so that it is an example."""
        buffer = self._buffer
        start = buffer.keep()
        closes = yield from buffer.find(_FENCE_CLOSES)
        if closes is None:
            # The fence may have been cut off.
            is_example = buffer.is_cut
        else:
            buffer.position += len(closes[0])
            is_example = yield from self._has_answer_behind()
            is_example = is_example or (yield from self._read_kind_of_following()) in (Following.TEXT, Following.CUT)
        buffer.rewind(start)
        return is_example

    def _has_answer_behind(self) -> Reading[bool]:
        buffer = self._buffer
        end = buffer.keep()
        yield from buffer.space()
        answer = yield from buffer.match(_ANSWER)
        buffer.rewind(end)
        return answer is not None

    def _take_fence_end(self) -> Reading[bool]:
        buffer = self._buffer
        if (yield from buffer.take(_FENCE_END)):
            return True
        return buffer.final and (yield from buffer.take(_FENCE_END_OF_ALL)) is not None

    def _skip_no_tool(self) -> Reading[Items]:
        """Move behind `Action: None` and its input. They are not a call, and are not shown."""
        buffer = self._buffer
        end = buffer.position
        yield from buffer.space()
        if (yield from buffer.take(_INPUT)):
            yield from buffer.find(_LINE)
        else:
            buffer.rewind(end)
        return []


_OF_CALL = regex.compile("action|tool|function", regex.IGNORECASE)
# Inside a word, a single mark is an apostrophe.
_OPEN_OR_CLOSE = {'"': regex.compile(r'(?<!\\)"'), "'": regex.compile(r"(?<![\w\\])'|(?<!\\)'(?!\w)")}
_QUOTES_AROUND = {'"""': '"""', "'''": "'''", "`": "`", '"': '"', "'": "'", "“": "”"}


def _find_unclosed_mark(label: str) -> str:
    """Return the stars or the back-tick that a label opens and does not close; "" if there are none."""
    marks = _MARKS.findall(label)
    return marks[0] if len(marks) == 1 else ""


def _remove_end_tokens(text: str) -> str:
    """Return `text` without the tokens at its end that end a turn."""
    end = len(text)
    for token in reversed(list(END_OF_TURN.finditer(text))):
        if text[token.end() : end].strip():
            break
        end = token.start()
    return text[:end]


def _lacks_end_token(text: str) -> bool:
    """Return whether the text does not end with a token that ends the turn."""
    text = text.rstrip()
    return _remove_end_tokens(text) == text


def _ends_in_half_a_label(text: str) -> bool:
    """Return whether `text` ends inside a label, or inside a token that ends the turn."""
    text = _remove_end_tokens(text).rstrip()
    token = END_OF_TURN.search(text, partial=True)
    if token and token.partial and len(token[0]) > 1:
        return True
    _, line_end, last = text.rpartition("\n")
    return bool(line_end) and _ANY_OR_INPUT_LABEL.fullmatch(last.lstrip(" \t"), partial=True) is not None


def _is_open_quotation(words: str) -> bool:
    """Return whether `words` begin with a quotation mark that is not closed."""
    mark = next((one for one in _QUOTES_AROUND if words.startswith(one)), "")
    return bool(mark) and (_QUOTES_AROUND[mark] not in words[len(mark) :] or not words.strip("`"))


def _find_open_mark(words: str) -> str:
    """Return the quotation mark that is open at the end of `words`; "" if none is open.

    A mark right behind a word opens no quotation: `the dogs' food`, `a 5" pipe`.
    """
    opened = (mark for mark, every in _OPEN_OR_CLOSE.items() if len(every.findall(words)) % 2)
    return next((mark for mark in opened if regex.search(rf"(?:(?<![\w\\])|(?<=\b[bfru])){mark}", words)), "")


def _build_call(value: Value, *, cut_off: bool) -> WrittenCall | str:
    """Return the call in an object that names its tool as `name` or, like LangChain, as `action`.

    Return the text of the final answer if the object contains that instead.
    """
    members = value.members
    if describes_a_tool(members):
        return WrittenCall("", "")
    if "action" not in members or any(key in members for key in NAME_KEYS):
        return build_call(value, cut_off=cut_off)
    name = decode_string(members["action"])
    given = next((members[key] for key in ("action_input", "input", "arguments", "args") if key in members), "")
    if name == FINAL_ANSWER:
        return decode_string(given)
    return WrittenCall(name, given, truncated=not value.whole, words=True)
