"""Reads gpt-oss: messages in channels. A message with a recipient is a call.

    <|channel|>analysis<|message|>I need to look it up.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "storms"}<|call|>
    <|start|>assistant<|channel|>final<|message|>It will rain.<|return|>

The specification is OpenAI's "Harmony response format" (`docs/format.md` of openai/harmony, also in the OpenAI
cookbook). The header's role or channel contains the recipient. Calls are on the commentary channel, and calls of
built-in tools on the analysis channel. Without a recipient, analysis is a thought, final is the answer (which contains
no calls), and commentary is a preamble for the user. A message to another recipient (`to=assistant`, another role) is
imagined and dropped.

These variations are accepted:

- any order of the header's parts
- `json` without its token
- a missing end of a message
- a header whose `<|start|>assistant` is in the prompt
- a call whose tokens the server has removed: `commentary to=functions.search json{…}`, or
  `to=functions.searchcommentary json{…}` with the recipient in the role
  (https://github.com/NousResearch/hermes-agent/issues/84158)
- a thought whose tokens the server has removed: `analysisWe need …assistantfinal`
  (https://github.com/Augustas11/macprovider/issues/743)
"""

from collections.abc import Sequence

import regex

from callboard_formats.json_text import read_arguments_object, read_value
from callboard_formats.names import resolve_name
from callboard_formats.quotation import is_introduced_as_example
from callboard_formats.syntax import BlockContext, BlockItems, Schemas, Syntax, Tags, TextKind, WrittenCall
from callboard_formats.text_buffer import Reading, TextBuffer

_ANALYSIS = "<|channel|>analysis<|message|>"
_FINAL = "<|channel|>final<|message|>"
_PREAMBLE = "<|channel|>commentary<|message|>"
_TO_TOOL = "<|channel|>commentary to="
_STRIPPED = ("assistantcommentary to=functions.", "commentary to=functions.", "analysis to=functions.")
_PREFILLED = "to=functions."
_IN_ROLE = "assistant to=functions."

_HEADER = regex.compile(r"(?:<\|(?:start|channel|constrain)\|>[^<\r\n]{0,160}+){1,4}+<\|message\|>", regex.IGNORECASE)
_BEHIND_TO = regex.compile(
    r"[^<\r\n]{1,160}+(?:<\|(?:channel|constrain)\|>[^<\r\n]{0,160}+){0,3}+<\|message\|>", regex.IGNORECASE
)
_PREFILLED_HEADER = regex.compile(rf"to=functions\.{_BEHIND_TO.pattern}", regex.IGNORECASE)
_RECIPIENT = regex.compile(r"\bto=\s*([^\s<]{1,160})")
_WORDS = regex.compile(r"\bto=\s*(?:functions\.)?([^<]{1,160})")
_ROLE = regex.compile(r"<\|start\|>\s*([^\s<]*)", regex.IGNORECASE)
_ROLES = regex.compile(r"assistant|user|system|developer|tool|functions\.[\w.-]+|[a-z]+\.[a-z_]+", regex.IGNORECASE)
_USERS = ("user", "all")
_GLUED = ("json", "commentary", "analysis")
_BEHIND_STRIPPED = regex.compile(r"([\w.-]{1,128}+)\s{0,9}+(?:(?:json|code)\s{0,9}+)?(?=\{)", regex.IGNORECASE)
_STRIPPED_CALL = regex.compile(
    rf"[a-z]*(?:commentary|analysis) to=functions\.{_BEHIND_STRIPPED.pattern}", regex.IGNORECASE
)
_BARE_CALL = regex.compile(rf"(?:assistant )?to=functions\.{_BEHIND_STRIPPED.pattern}", regex.IGNORECASE)
_STRIPPED_THOUGHT = regex.compile("analysis(?=[A-Z])")
_NEXT = regex.compile(r"<\||(?:assistant|commentary|analysis|to=functions)", regex.IGNORECASE)
_MESSAGE_END = regex.compile(r"<\|(?P<kind>end|call|return|start|channel)\|>", regex.IGNORECASE)
_ASSISTANT = regex.compile(r"<\|start\|>\s{0,9}+assistant\s{0,9}+(?=<\|channel\|>)", regex.IGNORECASE)


class Harmony(Syntax):
    """The syntax with `<|channel|>`."""

    name = "harmony"
    title = "gpt-oss (harmony)"
    source = ("https://github.com/openai/harmony/blob/main/docs/format.md",)
    models = (r"gpt-?oss",)
    template = ("<|channel|>",)
    openers = ("<|start|>", "<|channel|>", *_STRIPPED, _PREFILLED, _IN_ROLE)
    reasoning = tuple(
        # A message may have no end. Then the beginning of the next message ends it.
        Tags(
            before + opener,
            closer,
            TextKind.THOUGHT if opener == _ANALYSIS else TextKind.MESSAGE,
            calls=False,
            ends_before=closer in (_TO_TOOL, _PREAMBLE),
            followed_by=_BEHIND_TO if closer == _TO_TOOL else None,
        )
        for before in ("", "<|start|>assistant")
        for opener, closers in (
            (_ANALYSIS, ("<|end|>", "<|return|>", "<|start|>assistant", _FINAL, _TO_TOOL, _PREAMBLE)),
            *((text, ("<|end|>", "<|return|>", "<|start|>assistant", _TO_TOOL)) for text in (_FINAL, _PREAMBLE)),
        )
        for closer in closers
    ) + tuple(
        Tags(
            "analysis",
            closer,
            first=True,
            opens=_STRIPPED_THOUGHT,
            calls=False,
            ends_before=closer != "assistantfinal",
            followed_by=None if closer == "assistantfinal" else _BEHIND_STRIPPED,
        )
        for closer in ("assistantfinal", *_STRIPPED, _IN_ROLE)
    )
    stops = ("<|call|>", "<|return|>", "<|start|>user", "<|start|>functions.")

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read a call, drop a message to another recipient, or read only the header of any other message."""
        start = buffer.keep()
        if (yield from buffer.peek()) != "<":
            return (yield from self._read_without_opener(buffer, context))
        header = yield from buffer.match(_HEADER)
        if header is None:
            if buffer.final and buffer.cut_off(_HEADER):
                buffer.position = buffer.end
                return []
            return None
        recipient = _RECIPIENT.search(header[0])
        role = _ROLE.match(header[0])
        if role and not _ROLES.fullmatch(role[1]):
            return None
        buffer.position += len(header[0])
        if recipient and recipient[1].lower() not in ("assistant", *_USERS):
            return (yield from self._read_call(buffer, context, header[0]))
        if (recipient and recipient[1].lower() == "assistant") or (role and role[1].lower() != "assistant"):
            yield from self._read_message(buffer)
            return []
        if _ANALYSIS in header[0].lower() or _FINAL in header[0].lower():
            buffer.rewind(start)
            if not (yield from buffer.take(_ASSISTANT)):
                buffer.position += len(header[0])
        return []

    def _read_without_opener(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        """Read a call whose tokens the server has removed, or whose header begins in the prompt."""
        if bare := (yield from buffer.match(_BARE_CALL)):
            return (yield from self._read_bare_call(buffer, context, bare))
        if stripped := (yield from buffer.take(_STRIPPED_CALL)):
            name = _strip_glued_word(stripped[1], context.schemas)
            value = yield from read_arguments_object(buffer, watcher=context.watcher, name=name)
            return [WrittenCall(name, value.text, truncated=not value.whole)]
        header = (yield from buffer.take(_PREFILLED_HEADER)) if context.first else None
        return (yield from self._read_call(buffer, context, header[0])) if header else None

    def _read_bare_call(
        self, buffer: TextBuffer, context: BlockContext, head: "regex.Match[str]"
    ) -> Reading[Sequence[WrittenCall] | None]:
        """Read a call of a known tool without tokens and channel. If other text follows, the call is only mentioned."""
        name = _strip_glued_word(head[1], context.schemas)
        begins = context.line_start or head[0].lower().startswith(_IN_ROLE)
        is_example = is_introduced_as_example(buffer)
        if not begins or is_example or resolve_name(name, context.schemas) is None:
            return None
        buffer.position += len(head[0])
        value = yield from read_arguments_object(buffer, name=name)
        end = buffer.keep()
        yield from buffer.space()
        is_over = (yield from buffer.ends_here()) or (yield from buffer.match(_NEXT))
        buffer.rewind(end)
        return [WrittenCall(name, value.text, truncated=not value.whole)] if is_over or not value.whole else None

    def _read_call(self, buffer: TextBuffer, context: BlockContext, header: str) -> Reading[Sequence[WrittenCall]]:
        name = _read_recipient(header, context.schemas)
        yield from buffer.space()
        if (yield from buffer.peek()) != "{":
            words, closed = yield from self._read_message(buffer)
            return [WrittenCall(name, words.strip(), truncated=not closed)]
        start = buffer.keep()
        value = yield from read_value(buffer, _MESSAGE_END, context.watcher, name)
        yield from buffer.space()
        if buffer.final and buffer.cut_off(_MESSAGE_END):
            buffer.position = buffer.end
        words, closed = yield from self._read_message(buffer)
        written = buffer.cut(start, start + len(value.text)) + words.rstrip()
        return [WrittenCall(name, written, truncated=not value.whole and not closed)]

    def _read_message(self, buffer: TextBuffer) -> Reading[tuple[str, bool]]:
        """Return the rest of a message and whether it has an end. Move behind the end, or before the next message."""
        start = buffer.keep()
        end = yield from buffer.find(_MESSAGE_END)
        words = buffer.cut(start, buffer.position)
        if end and end["kind"].lower() not in ("start", "channel"):
            buffer.position += len(end[0])
        return words, end is not None


def _read_recipient(header: str, schemas: Schemas) -> str:
    """Return the tool's name in a header. It contains blanks only if the first word alone is no tool's name."""
    recipient = _RECIPIENT.search(header)
    if recipient is None:
        return ""
    name = _strip_glued_word(recipient[1].removeprefix("functions."), schemas)
    words = _WORDS.search(header)
    if words and resolve_name(name, schemas) is None and resolve_name(words[1], schemas):
        return str(words[1]).strip()
    return name


def _strip_glued_word(written: str, schemas: Schemas) -> str:
    """Return the name without `json` or a channel at its end, if only the shorter name is the name of a tool."""
    shorter = next((written[: -len(end)] for end in _GLUED if written.lower().endswith(end)), "")
    is_glued = shorter and resolve_name(written, schemas) is None and resolve_name(shorter, schemas)
    return shorter if is_glued else written
