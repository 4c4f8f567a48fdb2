"""The cleaner of answers for the user: no special tokens, no scaffolding, no fragments of a protocol.

Pure: the same text gives the same result, whole or cut anywhere. What is held back is little:
the possible beginning of a marker, or an end that more may follow. Everything else passes to the
letter; in code, in indented lines, in tables and right beside a quotation mark the markers
themselves pass too, for there they are spoken of, but for what the answer ends with. The markers
are the syntaxes' own and the tables below; `markers(…)` chooses those of some syntaxes and a model.
A model's own (`QUIRKS`) count before the syntaxes' (`SCAFFOLDING`), and these before tokens of any
(`TOKENS`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Literal, Protocol

import regex

from callboard_formats.formats import SYNTAXES
from callboard_formats.literals import Literals
from callboard_formats.quotation import BEFORE_CLOSING_FENCE, BEFORE_FENCE, PAIRS
from callboard_formats.syntax import END_OF_TURN, END_TOKENS, Syntax
from callboard_formats.table import ROWS

MAX_PASSED = 500
"""The pieces that are kept before they are looked at together."""

MAX_LINE_CHARS = 64
"""The characters at the beginning of a line that count; of a line no more is looked at."""

_TOKENS = re.compile(r"\n|`+|~+|[^\n`~]+")
_KEPT_LINE = re.compile(r" {0,3}\t| {4}| {0,3}[|>]")


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of so many back-ticks or tildes, and nothing else."""

    character: str
    length: int


class Place:
    """The place right after the text that was `passed`."""

    def __init__(self) -> None:
        self._passed: list[str] = []
        self._line = ""
        self._last = ""
        self._fence: _Run | None = None
        self._opening: _Run | None = None
        """A line that opens fenced code, unless a back-tick follows in it."""
        self._closing = False
        self._span = 0
        """The number of back-ticks that opened a code span."""
        self._run: _Run | None = None
        """Back-ticks or tildes right before this place; more may come."""

    def passed(self, text: str) -> None:
        """Move on by `text`; it may be cut anywhere."""
        # Looked at when somebody asks: few do.
        self._passed.append(text)
        if len(self._passed) > MAX_PASSED:
            self._look()

    def _look(self) -> None:
        text = "".join(self._passed)
        self._passed.clear()
        for token in _TOKENS.finditer(text):
            first = token[0][0]
            if self._run is not None and first != self._run.character:
                self._end_run()
            if first == "\n":
                self._end_line()
            elif first in "`~":
                self._run = _Run(first, len(token[0]) + (self._run.length if self._run else 0))
            else:
                self._closing = self._closing and not token[0].strip()
                self._append(token[0])

    def at_line_start(self) -> bool:
        """Return whether nothing stands before this place in its line."""
        self._look()
        return not self._line and not self._run

    def is_behind_words(self) -> bool:
        """Return whether more than white space stands before this place in its line; to be asked as `is_kept`."""
        self._look()
        self._end_run()
        return bool(self._line.strip())

    def is_kept(self) -> bool:
        """Return whether what follows in this line is code, indented, a row of a table or a quotation.

        To be asked only where no back-tick or tilde comes next.
        """
        self._look()
        self._end_run()
        # Behind the fence's closing marks nothing of a line is code yet.
        in_fence = self._fence is not None and not self._closing
        in_code = in_fence or self._opening is not None or self._span > 0
        return in_code or _KEPT_LINE.match(self._line) is not None

    def _append(self, text: str) -> None:
        self._last = text[-1]
        if len(self._line) < MAX_LINE_CHARS:
            self._line = (self._line + text)[:MAX_LINE_CHARS]

    def _end_run(self) -> None:
        run = self._run
        self._run = None
        if run is None:
            return
        before = self._line
        escaped = self._last == "\\"
        self._append(run.character * min(run.length, MAX_LINE_CHARS))
        if self._fence is not None:
            self._closing = (
                run.character == self._fence.character
                and run.length >= self._fence.length
                and BEFORE_CLOSING_FENCE.fullmatch(before) is not None
            )
        elif self._opening is None and run.length >= 3 and run.length != self._span and BEFORE_FENCE.fullmatch(before):
            self._opening = run
            self._span = 0
        elif run.character == "`":
            self._code_span(run.length - (escaped and self._span == 0))

    def _code_span(self, length: int) -> None:
        if self._opening is not None and self._opening.character == "`":
            # Not a fence, says CommonMark: there is a back-tick in its line. So a span began there.
            self._span = self._opening.length
            self._opening = None
        if self._span == length:
            self._span = 0
        elif self._span == 0:
            self._span = length

    def _end_line(self) -> None:
        if self._closing:
            self._fence = None
        elif self._opening is not None:
            self._fence = self._opening
            self._span = 0
        elif len(self._line) < MAX_LINE_CHARS and not self._line.strip():
            self._span = 0
        self._line = ""
        self._last = ""
        self._opening = None
        self._closing = False


MAX_NAME_CHARS = 64


class Skip(Protocol):
    """A thing to leave out. Made anew for each time."""

    def skip(self, text: str, start: int, *, final: bool) -> tuple[int, bool]:
        """Return the place up to which to leave out, and whether that was all; `text` grows while it is not."""
        ...


class Words:
    """A word, one of these literals, if it is there; in any case."""

    def __init__(self, literals: Iterable[str]) -> None:
        self._literals = sorted((one.lower() for one in literals), key=len, reverse=True)

    def skip(self, text: str, start: int, *, final: bool) -> tuple[int, bool]:
        """See `Skip`."""
        rest = text[start : start + len(self._literals[0])].lower()
        if not final and any(len(rest) < len(one) and one.startswith(rest) for one in self._literals):
            return start, False
        return start + next((len(one) for one in self._literals if rest.startswith(one)), 0), True


@dataclass(slots=True)
class Name:
    """A name of letters, digits, `_`, `-` and `.`; perhaps none."""

    _left: int = MAX_NAME_CHARS

    def skip(self, text: str, start: int, *, final: bool) -> tuple[int, bool]:  # noqa: ARG002 - nothing is held back
        """See `Skip`."""
        match = _NAME.match(text, start, start + self._left)
        end = match.end() if match else start
        self._left -= end - start
        return end, self._left == 0 or end < len(text)


@dataclass(slots=True)
class JsonValue:
    """An object or an array, if one begins here after white space; `depth` 1: right after its bracket.

    A blank line ends it: no JSON on one line or indented has one.
    """

    depth: int = 0
    _in_string: bool = field(default=False, init=False)
    _escaped: bool = field(default=False, init=False)
    _line_ended: bool = field(default=False, init=False)

    def skip(self, text: str, start: int, *, final: bool) -> tuple[int, bool]:
        """See `Skip`."""
        at = start
        if self.depth == 0:
            if (head := _HEAD.match(text, start)) is None:
                begun = _HALF_HEAD.match(text, start)
                if begun is None or final:
                    return (len(text) if begun and begun[1] else start), True
                return start, False
            self.depth = 1
            at = head.end(1)
        for token in _JSON_TOKENS.finditer(text, at):
            if self._line_ended and token[0] == "\n":
                return token.start(), True
            self._line_ended = token[0] == "\n"
            self._take(token[0])
            if self.depth == 0:
                return token.end(), True
        return len(text), final

    def _take(self, mark: str) -> None:
        if self._escaped:
            self._escaped = False
        elif self._in_string:
            self._escaped = mark == "\\"
            self._in_string = mark != '"'
        else:
            self._in_string = mark == '"'
            self.depth += (mark in "{[") - (mark in "}]")


class Until:
    """Text up to and including one of these literals, or up to a blank line."""

    def __init__(self, *closers: str) -> None:
        self._end = re.compile("|".join((*map(re.escape, closers), r"\n[ \t\r]{0,16}(?=\n)")), re.IGNORECASE | re.ASCII)
        self._longest = max(20, *map(len, closers))

    def skip(self, text: str, start: int, *, final: bool) -> tuple[int, bool]:
        """See `Skip`."""
        if match := self._end.search(text, start):
            return match.end(), True
        return (len(text), True) if final else (max(start, len(text) - self._longest), False)


class Line:
    """The rest of the line."""

    def skip(self, text: str, start: int, *, final: bool) -> tuple[int, bool]:
        """See `Skip`."""
        end = text.find("\n", start)
        return (len(text), final) if end < 0 else (end + 1, True)


_NAME = re.compile(r"[\w.\-]*", re.ASCII)
_HEAD = re.compile(r"\s{0,8}([{\[])\s{0,8}[\"'{}\[\]\d\-]")
_HALF_HEAD = re.compile(r"\s{0,8}(?:([{\[])\s{0,8})?\Z")
# Letters count one by one only where a backslash may stand before them.
_JSON_TOKENS = re.compile(r"[\\\"{}\[\]\n]|[^\\\"{}\[\]\s]")


Where = Literal["anywhere", "after space", "line start", "after answer", "beginning", "end"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A literal, matched without regard to case.

    `where`: what must stand before it (or that nothing follows) to be no prose. `then`: what
    is left out with it. `instead`: what the user sees in its place. `answers`: what follows
    is the final answer. `exact`: only in this case. `followed_by`: what has to stand behind it.
    """

    text: str
    where: Where = "anywhere"
    then: tuple[Callable[[], Skip], ...] = ()
    instead: str = ""
    answers: bool = False
    exact: bool = False
    followed_by: "regex.Pattern[str] | None" = None


def _all(texts: str, *then: Callable[[], Skip]) -> tuple[Marker, ...]:
    return tuple(Marker(text, then=then) for text in texts.split())


_ROLES = ("assistant", "user", "system", "developer", "tool", "model", "ipython")


def _role() -> Skip:
    return Words([*_ROLES, *(f"{role}\n" for role in _ROLES)])


def _channel() -> Skip:
    return Words(("analysis", "commentary", "final", "thought"))


def _harmony_header() -> Skip:
    kinds = ("", "json", "code", " json", " code", "<|constrain|>json", " <|constrain|>json")
    return Words([*kinds[1:], *(f"{kind}<|message|>" for kind in kinds)])


def _json() -> Skip:
    return JsonValue()


def _rest_of_json() -> Skip:
    return JsonValue(depth=1)


_HARMONY_CALL = regex.compile(r"[\w.-]{0,64}+\s{0,9}+(?:(?:json|code)\s{0,9}+)?(?:<\||[{\[])")
_HARMONY_CALLS = tuple(
    Marker(f"{before}to={to}", "after space", (Name, _harmony_header, _json), followed_by=_HARMONY_CALL)
    for before in ("", "commentary ", "analysis ", "assistant ", "assistantcommentary ", "assistantanalysis ")
    for to in ("functions.", "multi_tool_use.", "browser.")
)
_WRAPPERS = tuple(
    Marker(f'{{{space}"{key}"{gap}:', then=(_rest_of_json,))
    for key in ("tool_uses", "recipient_name")
    for space in ("", " ", "\n", "\n ", "\n  ", "\n    ", "\n\t")
    for gap in ("", " ")
)


def _deepseek(words: str) -> tuple[Marker, ...]:
    spaced = [word.replace("_", gap) for word in words.split() for gap in ("▁", "_")]
    return tuple(Marker(f"<｜{word}｜>") for word in dict.fromkeys(spaced))


TOKENS = (
    *_all("<|im_start|> <|start_header_id|> <start_of_turn>", _role),
    Marker("<|start|>", then=(_role,), exact=True),
    Marker("<|end|>", exact=True),
    *_all(
        "<|im_end|> <|im_sep|> <|message|> <|call|> <|return|> <|endoftext|> <|eot_id|> <|eom_id|>"
        " <|end_header_id|> <|begin_of_text|> <|end_of_text|> <|python_tag|> <end_of_turn> <|assistant|> <|user|>"
        " <|system|> <|observation|> <|im_user|> <|im_assistant|> <|im_system|> <|im_middle|>"
        " <|END_OF_TURN_TOKEN|> <|START_OF_TURN_TOKEN|> <|CHATBOT_TOKEN|>"
    ),
    *_all("<|channel|>", _channel),
    *_all("<|constrain|>", lambda: Words(("json",))),
    *_deepseek("begin_of_sentence end_of_sentence User Assistant"),
)
"""Tokens of any protocol around whole messages."""

_RESULTS = (
    *_all("<tool_response>", lambda: Until("</tool_response>")),
    *_all("<tool_result>", lambda: Until("</tool_result>")),
    *_all("<tool_results>", lambda: Until("</tool_results>")),
    *_all("<function_response>", lambda: Until("</function_response>")),
    *_all("<start_function_response>", lambda: Until("<end_function_response>")),
    *_all("[TOOL_RESULTS]", lambda: Until("[/TOOL_RESULTS]")),
    *_all("[AVAILABLE_TOOLS]", lambda: Until("[/AVAILABLE_TOOLS]")),
)
_TOKEN_BEGIN = ("<|", "<｜")
_TOKEN_END = (">", "]", "[")
_WORDS_TOO = ("<|tool_call|>", "[INST]")
"""Markers that stand in prose as often: left out for the models that are known for them."""


def _marks_of(syntax: Syntax) -> Iterator[Marker]:
    """Yield what its models leave in the text besides openers: its markers, and the tokens that they stop before."""
    tokens = (text for text in syntax.stops if text.startswith(_TOKEN_BEGIN) or text.endswith(_TOKEN_END))
    for text in (*syntax.markers, *tokens):
        yield Marker(text, exact=True)


def _is_token(opener: str) -> bool:
    return opener.endswith((">", "]")) and opener not in _WORDS_TOO


@cache
def fragments(syntaxes: tuple[str, ...] | None) -> tuple[Marker, ...]:
    """Return the fragments of calls and results that are left out where these syntaxes are read; every one for None."""
    if syntaxes is not None:
        return tuple(marker for one in SYNTAXES if one.name in syntaxes for marker in _marks_of(one))
    openers = (
        Marker(opener, then=(_json,) if row.body == "json" else (), exact=True)
        for row in sorted(ROWS, key=lambda row: row.body == "json")
        for opener in row.openers
        if _is_token(opener)
    )
    marks = (marker for one in SYNTAXES for marker in _marks_of(one) if marker.text not in _WORDS_TOO)
    return (*marks, *openers, *_RESULTS, *_HARMONY_CALLS, *_WRAPPERS)


def _spellings(word: str) -> tuple[str, ...]:
    return (f"{word}:", f"**{word}:**", f"**{word}**:")


_ANSWER_TAGS = (
    # A call may be all that stands in them.
    Marker("<answer>", "line start", (lambda: Words(("\n",)),), followed_by=regex.compile(r"\n|\Z")),
    Marker("\n</answer>"),
)

SCAFFOLDING: Mapping[str, tuple[Marker, ...]] = {
    "react": (
        *(Marker(text, "line start", (lambda: Words((" ",)),), answers=True) for text in _spellings("Final Answer")),
        *(Marker(text, "after answer", (Line,)) for word in ("Observation", "Thought") for text in _spellings(word)),
    ),
    "hunyuan_a13b": (Marker("助手：", "beginning"), *_ANSWER_TAGS),
    "granite": _all("<response> </response>"),
    "mistral": (Marker("<s>", "beginning"),),
    "xml": _all("</function> </parameter> </parameters> </arguments> </invoke> </tool>"),
}
"""Scaffolding that a syntax leaves behind, by its name."""

_THINKING = _all("<think> </think>")
_MISTRALS = (*_all("[INST] [/INST]"), Marker("<s>", "beginning"))
MESSAGE_ENDS = (
    "<|eos|>", "<|message_sep|>", "<|END_RESPONSE|>", "<|END_TEXT|>", "<|close|>response<|sep|>",
    "<|close|>message<|sep|>",
)  # fmt: skip
"""Markers that end a message, beside the tokens that end a turn."""

_TURN_ENDS = tuple(Marker(text, where="end") for text in END_TOKENS)

# Models that were trained on role play in forums write its markup: [FONT=Arial], [/COLOR].
_FORUM_MARKUP = (
    *_all("[FONT= [COLOR= [SIZE=", lambda: Until("]")),
    *_all("[/FONT] [/COLOR] [/SIZE] [HUMAN] [/HUMAN] [INST] [/INST]"),
)

QUIRKS: tuple[tuple[str, tuple[Marker, ...]], ...] = (
    ("qwen", _THINKING),
    ("qwq", _THINKING),
    ("deepseek", _THINKING),
    ("glm", (*_THINKING, *_all("<|begin_of_box|> <|end_of_box|>"))),
    ("hunyuan.*a13b", _ANSWER_TAGS),
    # https://docs.vllm.ai/en/v0.11.2/api/vllm/reasoning/ernie45_reasoning_parser/
    ("ernie", (Marker("<response>\n"), *_all("<response> </response>"))),
    ("kimi", _all("◁think▷ ◁/think▷")),
    ("mistral", _MISTRALS),
    ("mixtral", _MISTRALS),
    ("magistral", (*_MISTRALS, *_all("[THINK] [/THINK]"))),
    ("ministral", (*_MISTRALS, *_all("[THINK] [/THINK]"))),
    ("devstral", _MISTRALS),
    ("codestral", _MISTRALS),
    ("pixtral", _MISTRALS),
    ("llama", (Marker("assistant\n\n", "beginning"),)),
    ("pygmalion", _FORUM_MARKUP),
    ("mythomax", _FORUM_MARKUP),
    ("gemma", _all("<eos> <bos> <escape>")),
    (r"(?<![a-z])phi[-_0-9]", _all("<|tool|> <|/tool|> <|tool_call|> <|/tool_call|>")),
    (
        "granite",
        _all("<response> </response> <|start_of_role|>assistant<|end_of_role|> <|tool_call|> <|end_of_role|>"),
    ),
    (
        "command",
        _all("<|START_RESPONSE|> <|END_RESPONSE|> <|START_TEXT|> <|END_TEXT|> <|START_ACTION|> <|END_ACTION|>"),
    ),
    # A server that strips the special tokens leaves the words between them, run together.
    (
        "gpt-oss",
        tuple(Marker(text, instead="\n\n") for text in ("assistantfinal", "assistantcommentary", "assistantanalysis")),
    ),
)
"""Patterns of model names in lower case, and what these models leak. All that match count."""


STOPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dolphin", ("<|im_end|>", "<|im_start|>")),
    ("vicuna", ("</s>", "USER:")),
    ("alpaca", ("### Instruction:",)),
    ("mythomax", ("### Instruction:",)),
    ("pygmalion", ("[HUMAN]", "### Human:")),
)
"""Patterns of model names in lower case, and the literals that end the turn of these models by their cards' templates.

Endpoints that do not know the template let such a model go on as the user.
"""


def model_stops(model: str) -> tuple[str, ...]:
    """Return the stop sequences of a model; all patterns that match count."""
    return tuple(stop for pattern, stops in STOPS if re.search(pattern, model.lower()) for stop in stops)


@lru_cache(maxsize=64)
def markers(syntaxes: tuple[str, ...] | None, model: str) -> tuple[Mapping[str, Mapping[str, Marker]], Literals]:
    """Return the markers to look for of these syntaxes and this model, by literal in lower case, then by spelling.

    Those that count in any case have the spelling "". What a model leaks counts first.
    """
    quirks = [marker for pattern, own in QUIRKS if re.search(pattern, model.lower()) for marker in own]
    found: dict[str, dict[str, Marker]] = {}
    # Where a syntax was asked for, the others are text, and no text is left out.
    scaffolding = [marker for one in syntaxes or () for marker in SCAFFOLDING.get(one, ())]
    for marker in (*_TURN_ENDS, *fragments(syntaxes), *TOKENS, *scaffolding, *quirks):
        literal = marker.text.lower()
        if marker.exact:
            found.setdefault(literal, {})[marker.text] = marker
        else:
            found[literal] = {"": marker}
    return found, Literals(found)


MAX_AFTER_END = 48
_ENDS = frozenset(text.lower() for text in (*END_TOKENS, *MESSAGE_ENDS))
_NOTHING_BUT_ENDS = regex.compile(
    rf"(?:\s|{END_OF_TURN.pattern}|{'|'.join(map(regex.escape, MESSAGE_ENDS))})*\Z", regex.IGNORECASE
)
_TYPE = re.compile(r"<\w+>")
_BEHIND_TYPES = frozenset(" (>),;&*:")
_OPENING_QUOTES = frozenset(('"', "'", *PAIRS))
_CLOSING_QUOTES = frozenset(('"', "'", *PAIRS.values()))


class Cleaner:
    """The cleaner of one answer: `feed` what comes, then `finish` once.

    `syntaxes` are the names of those in use, whose scaffolding may be left over, None for every one; `model` is the
    model's name, by which its quirks are looked up.
    """

    def __init__(self, syntaxes: Sequence[str] | None, model: str) -> None:
        self._markers, self._literals = markers(None if syntaxes is None else tuple(syntaxes), model)
        self._place = Place()
        self._text = ""
        self._at = 0
        self._before = ""
        self._skips: list[Skip] = []
        self._began = False
        self._answering = False
        self._out: list[str] = []

    def answer_begins(self) -> None:
        """Note that the answer begins: the reader took the marker of the final answer out of the text itself."""
        self._answering = True

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        if self._text:
            text = self._text[self._at :] + text
            self._text = ""
            self._at = 0
        if not self._skips:
            # Most text has no marker: what `_read` does, for less.
            end, found = self._literals.find(text, 0, final=False)
            if not found:
                self._text = text[end:]
                return self._pass_plain(text[:end])
        self._text = text
        self._read(final=False)
        return self._take()

    def _pass_plain(self, text: str) -> str:
        if text:
            self._place.passed(text)
            self._began = self._began or not text.isspace()
            self._before = text[-1]
        return text

    def pass_on(self, text: str) -> str:
        """Return text that is shown as it stands, behind what was held back; what is left out may end in it."""
        if not self._skips:
            self._pass(len(self._text))
        self._text = self._text[self._at :] + text
        self._at = 0
        while self._skips and self._at < len(self._text) and self._leave_out(final=False):
            pass
        if not self._skips:
            self._pass(len(self._text))
        return self._take()

    def finish(self) -> str:
        """Return what was held back."""
        self._read(final=True)
        return self._take()

    def _take(self) -> str:
        out = "".join(self._out)
        self._out.clear()
        return out

    def _read(self, *, final: bool) -> None:
        while self._at < len(self._text) or (final and self._skips):
            if not (self._leave_out(final=final) if self._skips else self._next(final)):
                return

    def _leave_out(self, *, final: bool) -> bool:
        """Leave out what goes on, as far as it has come; False where more text is needed."""
        end, done = self._skips[0].skip(self._text, self._at, final=final)
        self._drop(end)
        if done:
            self._skips.pop(0)
        return done

    def _next(self, final: bool) -> bool:
        """Pass text on up to the next marker and leave it out; False where more text is needed."""
        start, found = self._literals.find(self._text, self._at, final=final)
        self._pass(start)
        if not found:
            return False
        spellings = self._markers[found]
        end = self._at + len(found)
        marker = spellings.get(self._text[self._at : end]) or spellings.get("")
        stands = self._stands(marker, end, final) if marker else False
        if stands is None:
            return False
        if marker is None or not stands:
            self._pass(self._at + 1)
            return True
        self._drop(end)
        if marker.instead:
            self._say(marker.instead)
        self._answering = self._answering or marker.answers
        self._skips = [make() for make in marker.then]
        return True

    def _stands(self, marker: Marker, end: int, final: bool) -> bool | None:
        """Return whether `marker` is one here and not spoken of; None where that cannot be told yet."""
        following = self._text[end : end + 1]
        # At the beginning of the answer no mark can close anything.
        quoted = self._before and (self._before in _OPENING_QUOTES or following in _CLOSING_QUOTES)
        if self._place.is_kept() or quoted:
            # What the answer ends with is never spoken of, but for a line of code.
            may_end = marker.text.lower() in _ENDS and self._place.is_behind_words()
            return self._ends_answer(end, final) if may_end else False
        if not (following or final):
            return None
        # `std::vector<tool_call> calls`: a type in code.
        if (
            _TYPE.fullmatch(marker.text)
            and following in _BEHIND_TYPES
            and (self._before.isalnum() or self._before == "_")
        ):
            return False
        if marker.followed_by:
            behind = marker.followed_by.match(self._text, end, partial=not final)
            if not behind or behind.partial:
                return None if behind else False
        return self._is_where(marker, end, final)

    def _is_where(self, marker: Marker, end: int, final: bool) -> bool | None:
        match marker.where:
            case "anywhere":
                return True
            case "after space":
                return not self._before or self._before.isspace() or self._before == ">"
            case "line start":
                return self._place.at_line_start()
            case "after answer":
                return self._answering and self._place.at_line_start()
            case "beginning":
                return not self._began
            case "end":
                return self._ends_answer(end, final)

    def _ends_answer(self, end: int, final: bool) -> bool | None:
        """Return whether nothing follows but ends of the turn; None where that cannot be told yet."""
        after = self._text[end : end + MAX_AFTER_END + 1]
        if len(after) > MAX_AFTER_END or not _NOTHING_BUT_ENDS.match(after, partial=not final):
            return False
        return True if final else None

    def _pass(self, end: int) -> None:
        if end > self._at:
            self._say(self._text[self._at : end])
            self._drop(end)

    def _say(self, text: str) -> None:
        self._place.passed(text)
        self._began = self._began or not text.isspace()
        self._out.append(text)

    def _drop(self, end: int) -> None:
        if end > self._at:
            self._before = self._text[end - 1]
            self._at = end
