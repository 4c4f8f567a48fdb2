"""Reads MiniMax M3: a mark precedes each tag, and each argument is an element, which may contain elements.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="search">]<]minimax[>[<query>storms]<]minimax[>[</query>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

The specification is the chat template of MiniMax-M3; the `minimax_m3` parsers of vLLM and SGLang read it too. The items
of a list are elements named `item`. A tag without the mark is text, and so is a closing tag that closes no open
element. If an argument is a string by the tool's schema, its value is its whole text including tags, because the text
may be about such calls. The mark is a token, and a server may remove it from a whole section.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from callboard_formats.broken import read_broken_name
from callboard_formats.names import resolve_name
from callboard_formats.row import NAME, compile_pattern
from callboard_formats.schemas import properties_of
from callboard_formats.syntax import BlockContext, BlockItems, Schemas, Syntax, Tags, WrittenCall
from callboard_formats.text_buffer import Reading, TextBuffer

MAX_DEPTH = 50

_MARK_TEXT = "]<]minimax[>["
_MARK = r"\]<\]minimax\[>\["
_ANY_SECTION = compile_pattern(rf"(?:{_MARK} )?<tool_call>(?= {_MARK})")
_BROKEN = compile_pattern(_MARK)
_CALL_END = compile_pattern(rf"{_MARK} </invoke>|{_MARK} </tool_call>|{_MARK} <invoke")


class _TagPatterns:
    """The patterns of tags with or without a mark. `attributes` is the pattern of the attributes of an element."""

    def __init__(self, mark: str, attributes: str) -> None:
        self.section = compile_pattern(rf"(?:{_MARK} )?<tool_call>(?= {mark} <invoke\s)")
        self.section_end = compile_pattern(rf"{mark} </tool_call>")
        self.call = compile_pattern(rf"{mark} <invoke\s{{1,9}}name = [\"']?{NAME}[\"']? >")
        self.goes_on = compile_pattern(rf"{mark} (?:</invoke>|<(?P<name>[^<>/\s]{{1,128}}+)>)")
        self.any = compile_pattern(rf"{mark} <(?P<closes>/?)(?P<name>[^<>/\s]{{1,128}}+){attributes}>")


_MARKED = _TagPatterns(_MARK, r"[^<>]{0,160}+")
# Without the mark, a tag with an attribute is text.
_UNMARKED = _TagPatterns("", "")


@dataclass(slots=True)
class _Element:
    """An element that is being read. `start` is the position at which its content begins."""

    name: str
    start: int = 0
    text: list[str] = field(default_factory=list)
    elements: list["_Element"] = field(default_factory=list)

    @property
    def has_words(self) -> bool:
        """Whether it contains text other than white space outside of its elements."""
        return bool("".join(self.text).strip())

    def set_text(self, content: str) -> None:
        """Make its content the string `content`, and drop its elements."""
        self.text = [content]
        self.elements.clear()

    def to_json(self) -> str:
        """Return its content as JSON: a list of items, an object of elements, or a string."""
        if not self.elements:
            return json.dumps("".join(self.text), ensure_ascii=False)
        if all(element.name == "item" for element in self.elements):
            return "[" + ", ".join(element.to_json() for element in self.elements) + "]"
        return self.to_object()

    def to_object(self) -> str:
        """Return its elements as a JSON object."""
        members = (f"{json.dumps(one.name, ensure_ascii=False)}: {one.to_json()}" for one in self.elements)
        return "{" + ", ".join(members) + "}"


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The names of a tool's arguments; `texts` are those that are strings by the schema."""

    names: frozenset[str]
    texts: frozenset[str]


def _read_schema(name: str, schemas: Schemas) -> _Arguments:
    resolved = resolve_name(name, schemas)
    properties = properties_of(schemas[resolved.name]) if resolved else {}
    # The schema of a property may be `true`, which allows every value.
    types = {key: schema.get("type") for key, schema in properties.items() if isinstance(schema, Mapping)}
    return _Arguments(
        names=frozenset(properties),
        texts=frozenset(key for key, kind in types.items() if kind == "string"),
    )


class MiniMaxM3(Syntax):
    """The syntax with `]<]minimax[>[`."""

    name = "minimax_m3"
    title = "MiniMax M3"
    source = ("https://github.com/vllm-project/vllm/blob/main/vllm/parser/minimax_m3.py",)
    models = (r"minimax-?m3",)
    template = ("]<]minimax[>[",)
    openers = ("]<]minimax[>[", "<tool_call>")
    reasoning = (Tags("<mm:think>", "</mm:think>"),)
    prompt_opens: tuple[str, ...] = ()
    stops = ("[e~[", "]~b]user", "]~b]tool")
    markers = ("]<]minimax[>[</tool_call>", "]<]minimax[>[</invoke>", "]~b]ai")
    refuses = True

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        """Read a section of calls, or calls without a section."""
        tags = _MARKED
        in_section = (yield from buffer.take(_MARKED.section)) is not None
        if not in_section and (yield from buffer.take(_UNMARKED.section)):
            tags = _UNMARKED
            in_section = True
        calls: list[WrittenCall] = []
        while True:
            if in_section or calls:
                yield from buffer.space()
            head = yield from buffer.take(tags.call)
            if head is None:
                break
            arguments = _read_schema(head["name"], context.schemas)
            calls.append((yield from self._read_call(buffer, tags, head["name"], arguments)))
        if not calls:
            return [] if in_section and buffer.final and buffer.is_at_end() else None
        yield from buffer.take(tags.section_end)
        return calls

    def refuse(self, buffer: TextBuffer, context: BlockContext) -> Reading[Sequence[WrittenCall] | None]:
        """Read a malformed call that names a tool, up to its end, and the calls behind it."""
        start = buffer.position
        in_section = (yield from buffer.take(_ANY_SECTION)) is not None
        yield from buffer.space()
        marked = yield from buffer.take(_BROKEN)
        name = (yield from read_broken_name(buffer, context.schemas, in_section=in_section)) if marked else None
        if name is None:
            buffer.rewind(start)
            return None
        begin = buffer.keep()
        end = yield from buffer.find(_CALL_END)
        refused = WrittenCall(name, buffer.cut(begin, buffer.position).strip(), broken=True)
        if end and end[0].lower().endswith("</invoke>"):
            buffer.position += len(end[0])
        yield from buffer.space()
        rest = yield from self.read(buffer, context)
        calls = [one for one in rest or () if isinstance(one, WrittenCall)]
        if not calls:
            yield from buffer.take(_MARKED.section_end)
        return [refused, *calls]

    def _read_call(
        self, buffer: TextBuffer, tags: _TagPatterns, name: str, arguments: _Arguments
    ) -> Reading[WrittenCall]:
        root = _Element("")
        open_elements = [root]
        begin = buffer.keep()
        readable = True
        while True:
            start = buffer.position
            tag = yield from buffer.find(tags.any)
            inner = open_elements[-1]
            inner.text.append(buffer.cut(start, buffer.position))
            if tag is None:
                if not readable:
                    return WrittenCall(name, "{" + buffer.cut(begin, buffer.position), truncated=True)
                return WrittenCall(name, root.to_object(), truncated=True, untyped=True)
            buffer.position += len(tag[0])
            if not tag["closes"]:
                element = _Element(tag["name"], buffer.position)
                inner.elements.append(element)
                open_elements.append(element)
                readable = readable and len(open_elements) <= MAX_DEPTH
                continue
            inner = yield from self._find_closed(buffer, tags, tag["name"], open_elements, arguments)
            if inner is not root and tag["name"] == inner.name:
                open_elements.pop()
                # If there is a second mark before the tag, it is unclear whether it belongs to the value.
                readable = readable and not inner.text[-1].rstrip().endswith(_MARK_TEXT)
                if open_elements == [root] and inner.name in arguments.texts:
                    # If another argument is directly inside this one, the closing tag of this one is missing.
                    readable = readable and arguments.names.isdisjoint(one.name for one in inner.elements)
                    inner.set_text(buffer.cut(inner.start, buffer.position - len(tag[0])))
                elif open_elements == [root] or open_elements[1].name not in arguments.texts:
                    readable = readable and not (inner.elements and inner.has_words)
            elif inner is root and tag["name"].lower() == "invoke":
                if not readable or root.has_words:
                    # Text between the elements belongs to a value, and would be lost.
                    return WrittenCall(name, "{" + buffer.cut(begin, buffer.position))
                return WrittenCall(name, root.to_object(), untyped=True)
            else:
                inner.text.append(tag[0])

    def _find_closed(
        self, buffer: TextBuffer, tags: _TagPatterns, name: str, open_elements: list[_Element], arguments: _Arguments
    ) -> Reading[_Element]:
        """Return the innermost open element, which the closing tag `name` may close.

        A string argument may contain tags that are never closed. At the closing tag of the argument, they are removed
        from `open_elements` if more of the call follows.
        """
        if not 2 < len(open_elements) <= MAX_DEPTH:
            return open_elements[-1]
        _, argument, *inner = open_elements
        if name == argument.name and name in arguments.texts and all(one.name != name for one in inner):
            following = yield from buffer.match(tags.goes_on)
            if following and (following["name"] is None or following["name"] in arguments.names):
                del open_elements[2:]
        return open_elements[-1]
