"""The markers that the cleaner removes, and the text behind each marker that it removes with it.

`markers` selects those of the given syntaxes and model. A model's markers (`QUIRKS`) take precedence over those of the
syntaxes (`SCAFFOLDING`), and these over the tokens of all protocols (`TOKENS`).
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
"""A reader that moves the buffer behind text that is to be removed, if there is any."""

_MAX_SPACE = 16
_BLANK_LINE = rf"\n[ \t\r]{{0,{_MAX_SPACE}}}+(?=\n)"
_HEAD = regex.compile(r"\s{0,8}+[{\[](?=\s{0,8}+[\"'{}\[\]\d\-])")
_HEAD_AT_END = regex.compile(r"\s{0,8}+[{\[]\s{0,8}+\Z")
_OUTSIDE_STRINGS = regex.compile(rf"[\"{{}}\[\]]|{_BLANK_LINE}")
_NAME = regex.compile(r"[A-Za-z0-9_.\-]{0,64}+")
_LINE_END = regex.compile(r"\n")
_IN_STRING = regex.compile(rf"\"|\\[^\n]|{_BLANK_LINE}")


def _words(*texts: str) -> Skip:
    """Return a reader that skips the longest of these texts, if one is there. Case does not matter."""
    literals = Literals(texts)

    def skip(buffer: TextBuffer) -> Reading[None]:
        while not buffer.final and (buffer.is_at_end() or literals.may_grow(buffer.text, buffer.index)):
            yield
        buffer.position += len(literals.match(buffer.text, buffer.index))

    return skip


def _until(closer: str) -> Skip:
    """Return a reader that skips the text up to and including this literal, or up to a blank line."""
    end = regex.compile(f"{regex.escape(closer)}|{_BLANK_LINE}", regex.IGNORECASE | regex.ASCII)
    return lambda buffer: _move_behind(buffer, end)


def _move_behind(buffer: TextBuffer, end: "regex.Pattern[str]") -> "Reading[regex.Match[str] | None]":
    found = yield from buffer.find(end)
    buffer.position += len(found[0]) if found else 0
    return found


def _name(buffer: TextBuffer) -> Reading[object]:
    """Skip a name, which may be empty. The marker's `followed_by` has already seen all of it."""
    return buffer.take(_NAME)


def _line(buffer: TextBuffer) -> Reading[object]:
    """Skip the rest of the line."""
    return _move_behind(buffer, _LINE_END)


def _json(buffer: TextBuffer) -> Reading[None]:
    """Skip an object or an array, if one begins here after white space."""
    if (yield from buffer.take(_HEAD)) or (yield from buffer.take(_HEAD_AT_END)):
        yield from _rest_of_json(buffer)


def _rest_of_json(buffer: TextBuffer) -> Reading[None]:
    """Skip the rest of an object or array. A blank line ends it, because JSON in answers contains none."""
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
        where: The positions at which it is no prose.
        then: The readers that skip the text that is removed with it.
        instead: The text that the user sees in its place.
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


def _all(texts: str, *then: Skip) -> tuple[Marker, ...]:
    return tuple(Marker(text, then=then) for text in texts.split())


_ROLES = ("assistant", "user", "system", "developer", "tool", "model", "ipython")
_ROLE = _words(*_ROLES, *(f"{role}\n" for role in _ROLES))
_CHANNEL = _words("analysis", "commentary", "final", "thought")
_HARMONY_KINDS = ("", "json", "code", " json", " code", "<|constrain|>json", " <|constrain|>json")
_HARMONY_HEADER = _words(*_HARMONY_KINDS[1:], *(f"{kind}<|message|>" for kind in _HARMONY_KINDS))
_HARMONY_CALL = regex.compile(r"[\w.-]{0,64}+\s{0,9}+(?:(?:json|code)\s{0,9}+)?(?:<\||[{\[])")
_HARMONY_CALLS = tuple(
    Marker(f"{before}to={to}", "after space", (_name, _HARMONY_HEADER, _json), followed_by=_HARMONY_CALL)
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
    *_all("<|im_start|> <|start_header_id|> <start_of_turn>", _ROLE),
    Marker("<|start|>", then=(_ROLE,), exact=True),
    Marker("<|end|>", exact=True),
    *_all(
        "<|im_end|> <|im_sep|> <|message|> <|call|> <|return|> <|endoftext|> <|eot_id|> <|eom_id|>"
        " <|end_header_id|> <|begin_of_text|> <|end_of_text|> <|python_tag|> <end_of_turn> <|assistant|> <|user|>"
        " <|system|> <|observation|> <|im_user|> <|im_assistant|> <|im_system|> <|im_middle|>"
        " <|END_OF_TURN_TOKEN|> <|START_OF_TURN_TOKEN|> <|CHATBOT_TOKEN|>"
    ),
    *_all("<|channel|>", _CHANNEL),
    *_all("<|constrain|>", _words("json")),
    *_deepseek("begin_of_sentence end_of_sentence User Assistant"),
)
"""The tokens that protocols write around whole messages."""

_RESULTS = (
    *_all("<tool_response>", _until("</tool_response>")),
    *_all("<tool_result>", _until("</tool_result>")),
    *_all("<tool_results>", _until("</tool_results>")),
    *_all("<function_response>", _until("</function_response>")),
    *_all("<start_function_response>", _until("<end_function_response>")),
    *_all("[TOOL_RESULTS]", _until("[/TOOL_RESULTS]")),
    *_all("[AVAILABLE_TOOLS]", _until("[/AVAILABLE_TOOLS]")),
)
_TOKEN_BEGIN = ("<|", "<｜")
_TOKEN_END = (">", "]", "[")
_WORDS_TOO = ("<|tool_call|>", "[INST]")
"""Markers that are as common in prose. They are removed only for models that are known to leak them."""


def _marks_of(syntax: Syntax) -> Iterator[Marker]:
    """Yield the fragments that its models leave in the text, except openers: its markers and its stop tokens."""
    tokens = (text for text in syntax.stops if text.startswith(_TOKEN_BEGIN) or text.endswith(_TOKEN_END))
    for text in (*syntax.markers, *tokens):
        yield Marker(text, exact=True)


def _is_token(opener: str) -> bool:
    return opener.endswith((">", "]")) and opener not in _WORDS_TOO


@cache
def fragments(syntaxes: tuple[str, ...] | None) -> tuple[Marker, ...]:
    """Return the fragments of calls and results to remove when these syntaxes are read; None means all syntaxes."""
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
    # The tags may contain only a call.
    Marker("<answer>", "line start", (_words("\n"),), followed_by=regex.compile(r"\n|\Z")),
    Marker("\n</answer>"),
)

SCAFFOLDING: Mapping[str, tuple[Marker, ...]] = {
    "react": (
        *(Marker(text, "line start", (_words(" "),), answers=True) for text in _spellings("Final Answer")),
        *(Marker(text, "after answer", (_line,)) for word in ("Observation", "Thought") for text in _spellings(word)),
    ),
    "hunyuan_a13b": (Marker("助手：", "beginning"), *_ANSWER_TAGS),
    "granite": _all("<response> </response>"),
    "mistral": (Marker("<s>", "beginning"),),
    "xml": _all("</function> </parameter> </parameters> </arguments> </invoke> </tool>"),
}
"""The labels and tags that a syntax leaves in the answer, by its name."""

_THINKING = _all("<think> </think>")
_MISTRALS = (*_all("[INST] [/INST]"), Marker("<s>", "beginning"))
MESSAGE_ENDS = (
    "<|eos|>", "<|message_sep|>", "<|END_RESPONSE|>", "<|END_TEXT|>", "<|close|>response<|sep|>",
    "<|close|>message<|sep|>",
)  # fmt: skip
"""Markers that end a message, in addition to the tokens that end a turn."""

_TURN_ENDS = tuple(Marker(text, where="end") for text in END_TOKENS)

# Models that were trained on role play in forums write its markup: [FONT=Arial], [/COLOR].
_FORUM_MARKUP = (
    *_all("[FONT= [COLOR= [SIZE=", _until("]")),
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
    # A server that strips the special tokens leaves the words between them without separators.
    (
        "gpt-oss",
        tuple(Marker(text, instead="\n\n") for text in ("assistantfinal", "assistantcommentary", "assistantanalysis")),
    ),
)
"""Patterns of model names in lower case, and the markers that these models leak. All matching rows apply."""


STOPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dolphin", ("<|im_end|>", "<|im_start|>")),
    ("vicuna", ("</s>", "USER:")),
    ("alpaca", ("### Instruction:",)),
    ("mythomax", ("### Instruction:",)),
    ("pygmalion", ("[HUMAN]", "### Human:")),
)
"""Patterns of model names in lower case, and the literals that end a turn by the templates on the models' cards.

Without these stop sequences, an endpoint that does not know the template lets the model continue as the user.
"""


def model_stops(model: str) -> tuple[str, ...]:
    """Return the stop sequences of a model, from all matching rows of `STOPS`."""
    return tuple(stop for pattern, stops in STOPS if re.search(pattern, model.lower()) for stop in stops)


@lru_cache(maxsize=64)
def markers(syntaxes: tuple[str, ...] | None, model: str) -> tuple[Mapping[str, Mapping[str, Marker]], Literals]:
    """Return the markers of these syntaxes and this model, by literal in lower case and then by spelling.

    The spelling of a marker that matches in any case is "". A model's marker replaces others of the same literal.
    """
    quirks = [marker for pattern, own in QUIRKS if re.search(pattern, model.lower()) for marker in own]
    found: dict[str, dict[str, Marker]] = {}
    # Labels are removed only for syntaxes that were asked for. In other answers they are text.
    scaffolding = [marker for one in syntaxes or () for marker in SCAFFOLDING.get(one, ())]
    for marker in (*_TURN_ENDS, *fragments(syntaxes), *TOKENS, *scaffolding, *quirks):
        literal = marker.text.lower()
        if marker.exact:
            found.setdefault(literal, {})[marker.text] = marker
        else:
            found[literal] = {"": marker}
    return found, Literals(found)
