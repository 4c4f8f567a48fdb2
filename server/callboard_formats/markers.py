"""The markers that the cleaner removes, and the text behind each marker that is removed with it.

`select_markers` selects the markers of the given syntaxes and model. If several have the same literal, a model's marker
(`MODEL_MARKERS`) replaces a syntax's marker (`SYNTAX_LABELS`), which replaces a token of all protocols (`TOKENS`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import regex

from callboard_formats.formats import SYNTAXES
from callboard_formats.literals import Literals
from callboard_formats.syntax import END_TOKENS, Syntax
from callboard_formats.table import ROWS
from callboard_formats.text_buffer import Reading, TextBuffer

Skip = Callable[[TextBuffer], Reading[object]]
"""A reader that moves behind text that is removed, if there is any at the position."""

_MAX_SPACE = 16
_BLANK_LINE = rf"\n[ \t\r]{{0,{_MAX_SPACE}}}+(?=\n)"
_HEAD = regex.compile(r"\s{0,8}+[{\[](?=\s{0,8}+[\"'{}\[\]\d\-])")
_HEAD_AT_END = regex.compile(r"\s{0,8}+[{\[]\s{0,8}+\Z")
_OUTSIDE_STRINGS = regex.compile(rf"[\"{{}}\[\]]|{_BLANK_LINE}")
_NAME = regex.compile(r"[A-Za-z0-9_.\-]{0,64}+")
_LINE_END = regex.compile(r"\n")
_IN_STRING = regex.compile(rf"\"|\\[^\n]|{_BLANK_LINE}")


def _skip_words(*texts: str) -> Skip:
    """Return a reader that skips the longest of these texts at the position, regardless of case."""
    literals = Literals(texts)

    def skip(buffer: TextBuffer) -> Reading[None]:
        while not buffer.final and (buffer.is_at_end() or literals.may_grow(buffer.text, buffer.index)):
            yield
        buffer.position += len(literals.match(buffer.text, buffer.index))

    return skip


def _skip_until(closer: str) -> Skip:
    """Return a reader that skips the text up to the end of this literal, or up to a blank line."""
    end = regex.compile(f"{regex.escape(closer)}|{_BLANK_LINE}", regex.IGNORECASE | regex.ASCII)
    return lambda buffer: _move_behind(buffer, end)


def _move_behind(buffer: TextBuffer, end: "regex.Pattern[str]") -> "Reading[regex.Match[str] | None]":
    found = yield from buffer.find(end)
    buffer.position += len(found[0]) if found else 0
    return found


def _skip_name(buffer: TextBuffer) -> Reading[object]:
    """Skip a name, which may be empty. It has arrived completely, because the marker's `followed_by` matched it."""
    return buffer.take(_NAME)


def _skip_line(buffer: TextBuffer) -> Reading[object]:
    """Skip the rest of the line."""
    return _move_behind(buffer, _LINE_END)


def _skip_json(buffer: TextBuffer) -> Reading[None]:
    """Skip an object or an array, and the white space before it, if one begins here.

    A blank line ends it, because JSON in answers has no blank lines.
    """
    if not ((yield from buffer.take(_HEAD)) or (yield from buffer.take(_HEAD_AT_END))):
        return
    depth = 1
    in_string = False
    while depth:
        found = yield from _move_behind(buffer, _IN_STRING if in_string else _OUTSIDE_STRINGS)
        if found is None or found[0][0] == "\n":
            return
        in_string ^= found[0] == '"'
        if not in_string:
            depth += (found[0] in "{[") - (found[0] in "}]")


Place = Literal["anywhere", "after space", "line start", "after answer", "beginning", "end"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A literal that is removed.

    Attributes:
        text: The literal, matched without regard to case unless it is `exact`.
        where: The positions at which it is removed. At other positions it is prose.
        then: The readers that skip the text that is removed with it.
        instead: The text that replaces it.
        answers: The final answer follows it.
        exact: Only this case matches.
        followed_by: The pattern that must follow it.
    """

    text: str
    where: Place = "anywhere"
    then: tuple[Skip, ...] = ()
    instead: str = ""
    answers: bool = False
    exact: bool = False
    followed_by: "regex.Pattern[str] | None" = None


def _make_markers(texts: str, *then: Skip) -> tuple[Marker, ...]:
    return tuple(Marker(text, then=then) for text in texts.split())


_ROLES = ("assistant", "user", "system", "developer", "tool", "model", "ipython")
_ROLE = _skip_words(*_ROLES, *(f"{role}\n" for role in _ROLES))
_CHANNEL = _skip_words("analysis", "commentary", "final", "thought")
_HARMONY_KINDS = ("", "json", "code", " json", " code", "<|constrain|>json", " <|constrain|>json")
_HARMONY_HEADER = _skip_words(*_HARMONY_KINDS[1:], *(f"{kind}<|message|>" for kind in _HARMONY_KINDS))
_HARMONY_CALL = regex.compile(r"[\w.-]{0,64}+\s{0,9}+(?:(?:json|code)\s{0,9}+)?(?:<\||[{\[])")
_HARMONY_CALLS = tuple(
    Marker(f"{before}to={to}", "after space", (_skip_name, _HARMONY_HEADER, _skip_json), followed_by=_HARMONY_CALL)
    for before in ("", "commentary ", "analysis ", "assistant ", "assistantcommentary ", "assistantanalysis ")
    for to in ("functions.", "multi_tool_use.", "browser.")
)


def _make_deepseek_tokens(words: str) -> tuple[Marker, ...]:
    spaced = [word.replace("_", gap) for word in words.split() for gap in ("▁", "_")]
    return tuple(Marker(f"<｜{word}｜>") for word in dict.fromkeys(spaced))


TOKENS = (
    *_make_markers("<|im_start|> <|start_header_id|> <start_of_turn>", _ROLE),
    Marker("<|start|>", then=(_ROLE,), exact=True),
    Marker("<|end|>", exact=True),
    *_make_markers(
        "<|im_end|> <|im_sep|> <|message|> <|call|> <|return|> <|endoftext|> <|eot_id|> <|eom_id|>"
        " <|end_header_id|> <|begin_of_text|> <|end_of_text|> <|python_tag|> <end_of_turn> <|assistant|> <|user|>"
        " <|system|> <|observation|> <|im_user|> <|im_assistant|> <|im_system|> <|im_middle|>"
        " <|END_OF_TURN_TOKEN|> <|START_OF_TURN_TOKEN|> <|CHATBOT_TOKEN|>"
    ),
    *_make_markers("<|channel|>", _CHANNEL),
    *_make_markers("<|constrain|>", _skip_words("json")),
    *_make_deepseek_tokens("begin_of_sentence end_of_sentence User Assistant"),
)
"""The tokens that protocols write around whole messages."""

_RESULTS = (
    *_make_markers("<tool_response>", _skip_until("</tool_response>")),
    *_make_markers("<tool_result>", _skip_until("</tool_result>")),
    *_make_markers("<tool_results>", _skip_until("</tool_results>")),
    *_make_markers("<function_response>", _skip_until("</function_response>")),
    *_make_markers("<start_function_response>", _skip_until("<end_function_response>")),
    *_make_markers("[TOOL_RESULTS]", _skip_until("[/TOOL_RESULTS]")),
    *_make_markers("[AVAILABLE_TOOLS]", _skip_until("[/AVAILABLE_TOOLS]")),
)
_TOKEN_BEGIN = ("<|", "<｜")
_TOKEN_END = (">", "]", "[")
_ALSO_IN_PROSE = ("<|tool_call|>", "[INST]")
"""The markers that are also common in prose. They are removed only for models that are known to leak them."""


def _marks_of(syntax: Syntax) -> Iterator[Marker]:
    """Yield the fragments that models of a syntax leave in the text, except openers: its markers and stop tokens."""
    tokens = (text for text in syntax.stops if text.startswith(_TOKEN_BEGIN) or text.endswith(_TOKEN_END))
    for text in (*syntax.markers, *tokens):
        yield Marker(text, exact=True)


def _is_token(opener: str) -> bool:
    return opener.endswith((">", "]")) and opener not in _ALSO_IN_PROSE


@cache
def list_fragments(syntaxes: tuple[str, ...] | None) -> tuple[Marker, ...]:
    """Return the fragments of calls and results to remove when these syntaxes are read; None means all syntaxes."""
    if syntaxes is not None:
        return tuple(marker for one in SYNTAXES if one.name in syntaxes for marker in _marks_of(one))
    openers = (
        Marker(opener, then=(_skip_json,) if row.body == "json" else (), exact=True)
        for row in sorted(ROWS, key=lambda row: row.body == "json")
        for opener in row.openers
        if _is_token(opener)
    )
    marks = (marker for one in SYNTAXES for marker in _marks_of(one) if marker.text not in _ALSO_IN_PROSE)
    return (*marks, *openers, *_RESULTS, *_HARMONY_CALLS)


def _spell_label(word: str) -> tuple[str, ...]:
    return (f"{word}:", f"**{word}:**", f"**{word}**:")


_ANSWER_TAGS = (
    # The tags may contain only a call.
    Marker("<answer>", "line start", (_skip_words("\n"),), followed_by=regex.compile(r"\n|\Z")),
    Marker("\n</answer>"),
)

SYNTAX_LABELS: Mapping[str, tuple[Marker, ...]] = {
    "react": (
        *(Marker(text, "line start", (_skip_words(" "),), answers=True) for text in _spell_label("Final Answer")),
        *(
            Marker(text, "after answer", (_skip_line,))
            for word in ("Observation", "Thought")
            for text in _spell_label(word)
        ),
    ),
    "hunyuan_a13b": (Marker("助手：", "beginning"), *_ANSWER_TAGS),
    "granite": _make_markers("<response> </response>"),
    "mistral": (Marker("<s>", "beginning"),),
    "xml": _make_markers(
        "</function> </parameter> </parameters> </arguments> </invoke> </tool> <minimax:tool_call> </minimax:tool_call>"
    ),
}
"""The labels and tags that models of a syntax leave in the answer, by the name of the syntax."""

_THINKING = _make_markers("<think> </think>")
MESSAGE_ENDS = (
    "<|eos|>", "<|message_sep|>", "<|END_RESPONSE|>", "<|END_TEXT|>", "<|close|>response<|sep|>",
    "<|close|>message<|sep|>",
)  # fmt: skip
"""Markers that end a message, in addition to the tokens that end a turn."""

_TURN_ENDS = tuple(Marker(text, where="end") for text in END_TOKENS)

MODEL_MARKERS: tuple[tuple[str, tuple[Marker, ...]], ...] = (
    ("qwen|qwq|deepseek", _THINKING),
    ("glm", (*_THINKING, *_make_markers("<|begin_of_box|> <|end_of_box|>"))),
    ("hunyuan.*a13b", _ANSWER_TAGS),
    # https://docs.vllm.ai/en/v0.11.2/api/vllm/reasoning/ernie45_reasoning_parser/
    ("ernie", (Marker("<response>\n"), *_make_markers("<response> </response>"))),
    ("kimi", _make_markers("◁think▷ ◁/think▷")),
    (
        "mistral|mixtral|magistral|ministral|devstral|codestral|pixtral",
        (*_make_markers("[INST] [/INST]"), Marker("<s>", "beginning")),
    ),
    ("magistral|ministral", _make_markers("[THINK] [/THINK]")),
    ("llama", (Marker("assistant\n\n", "beginning"),)),
    ("gemma", _make_markers("<eos> <bos> <escape>")),
    (r"(?<![a-z])phi[-_0-9]", _make_markers("<|tool|> <|/tool|> <|tool_call|> <|/tool_call|>")),
    (
        "granite",
        _make_markers("<response> </response> <|start_of_role|>assistant<|end_of_role|> <|tool_call|> <|end_of_role|>"),
    ),
    (
        "command",
        _make_markers(
            "<|START_RESPONSE|> <|END_RESPONSE|> <|START_TEXT|> <|END_TEXT|> <|START_ACTION|> <|END_ACTION|>"
        ),
    ),
    # A server that strips the special tokens leaves the words between them without separators.
    (
        "gpt-oss",
        tuple(Marker(text, instead="\n\n") for text in ("assistantfinal", "assistantcommentary", "assistantanalysis")),
    ),
)
"""Patterns of model names in lower case, and the markers that these models leak. All matching rows apply to a model."""


@lru_cache(maxsize=64)
def select_markers(syntaxes: tuple[str, ...] | None, model: str) -> tuple[Mapping[str, Mapping[str, Marker]], Literals]:
    """Return the markers of these syntaxes and this model, by literal in lower case and then by spelling.

    The spelling of a marker that matches in any case is "".
    """
    own_markers = [marker for pattern, own in MODEL_MARKERS if re.search(pattern, model.lower()) for marker in own]
    found: dict[str, dict[str, Marker]] = {}
    # Labels are removed only for syntaxes that were requested. In other answers they are text.
    labels = [marker for one in syntaxes or () for marker in SYNTAX_LABELS.get(one, ())]
    for marker in (*_TURN_ENDS, *list_fragments(syntaxes), *TOKENS, *labels, *own_markers):
        literal = marker.text.lower()
        if marker.exact:
            found.setdefault(literal, {})[marker.text] = marker
        else:
            found[literal] = {"": marker}
    return found, Literals(found)
