"""Calls in a stream: other text is unchanged and shown early, and markers are never shown."""

from collections.abc import Sequence
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from callboard_formats.formats import SYNTAXES, syntaxes_of
from callboard_formats.output import CallPiece, FoundCall, ReasoningPiece, Shown, TextPiece
from callboard_formats.scanner import Scanner
from callboard_formats.syntax import BlockContext, BlockItems, Syntax, Tags, WrittenCall
from callboard_formats.text_buffer import Reading, TextBuffer

TOOLS: dict[str, dict[str, Any]] = {"search": {}, "get_weather": {}, "memory": {}}
REACT = syntaxes_of(["react"])
XML = syntaxes_of(["xml"])
EVERYTHING = (SYNTAXES, REACT, XML)


class Brackets(Syntax):
    """`[[name arguments]]`; `((` … `))` is a thought."""

    name = "brackets"
    openers = ("[[", "[[[late")
    reasoning = (Tags("((", "))"),)
    stops = ("\nRESULT",)

    def read(self, buffer: TextBuffer, context: BlockContext) -> Reading[BlockItems | None]:
        start = buffer.keep()
        if (yield from buffer.match(regex.compile(r"\[\[ "))):
            return None
        end = yield from buffer.find(regex.compile(r"\]\]"))
        buffer.position += 2 if end else 0
        block = buffer.cut(start, buffer.position)
        name, _, arguments = block.strip("[]").partition(" ")
        return [WrittenCall(name, arguments, end is None)] if name in context.schemas else [block]


def scan(text: str, step: int = 0, syntaxes: Sequence[Syntax] = (Brackets(),)) -> list[Shown]:
    scanner = Scanner(syntaxes, TOOLS)
    parts = [text[at : at + step] for at in range(0, len(text), step)] if step else [text]
    return [one for part in parts for one in scanner.feed(part)] + scanner.finish()


def said(shown: Sequence[Shown]) -> tuple[str, str, list[tuple[str, str, bool]]]:
    """Return the text, the reasoning and the calls."""
    return (
        "".join(one.text for one in shown if isinstance(one, TextPiece)),
        "".join(one.text for one in shown if isinstance(one, ReasoningPiece)),
        [(one.call.name, one.call.arguments, one.call.truncated) for one in shown if isinstance(one, FoundCall)],
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Hi [[search a]]", ("Hi", "", [("search", "a", False)])),
        ("Hi [ [x]] [[ no]] [[what is this]] \n", ("Hi [ [x]] [[ no]] [[what is this]] \n", "", [])),
        ("[[search a]] and [[search b]]\n[[memory c]] later", (
            "and", "", [("search", "a", False), ("search", "b", False), ("memory", "c", False)],
        )),
        ("[[search a]]\nRESULT: 1 [[search b]]", ("", "", [("search", "a", False)])),
        ("RESULT of it", ("RESULT of it", "", [])),
        ("[[search a", ("", "", [("search", "a", True)])),
        ("((so [[search a]] )) \n Yes", ("Yes", "so [[search a]]", [])),
        ("Well ((spoken of)) so", ("Well ((spoken of)) so", "", [])),
        ("Well.\n((hm))\nYes", ("Well.\n\nYes", "hm", [])),
        ("((never closed", ("", "never closed", [])),
        ("`[[search a]]`", ("`[[search a]]`", "", [])),
        ("```\n[[search a]]\n```\n[[search b]]", ("```\n[[search a]]\n```", "", [("search", "b", False)])),
        ("~~~~\n```\n~~~\n[[search a]]\n~~~~~\n", ("~~~~\n```\n~~~\n[[search a]]\n~~~~~\n", "", [])),
        ("```never closed\n[[search a]]", ("```never closed\n[[search a]]", "", [])),
        ("```a``` and [[search a]]", ("```a``` and", "", [("search", "a", False)])),
        ("", ("", "", [])),
    ],
)  # fmt: skip
def test_calls_text_and_reasoning_are_separated_whole_and_cut_anywhere(text: str, meant: object) -> None:
    assert said(scan(text)) == meant
    for step in range(1, 8):
        assert said(scan(text, step)) == meant, step


def test_the_arguments_shown_for_a_call_are_its_arguments() -> None:
    text = (
        'Action: search\nAction Input: {"q": "a", "n": {"x": 1}}\nAction: get_weather\nAction Input: {"city": "L"}\n'
        '<tool_call>{"name": "memory", "arguments": {"b": ["}"], "c": {"d": {"e": 1}}}}</tool_call>'
    )
    for step in (0, 1, 5):
        shown = scan(text, step, (*REACT, *XML))
        pieces: dict[int, str] = {}
        for one in shown:
            if isinstance(one, CallPiece):
                pieces[one.number] = pieces.get(one.number, "") + one.text
        calls = {one.number: one.call.arguments for one in shown if isinstance(one, FoundCall)}
        assert pieces == calls
        assert len(calls) == 3


def test_arguments_are_shown_while_they_are_written() -> None:
    scanner = Scanner(XML, TOOLS)
    for part in ('<tool_call>{"name"', ': "search", "arguments": '):
        assert scanner.feed(part) == []
    assert scanner.feed('{"q": "sto') == [CallPiece(0, "search", '{"q": "sto')]
    assert scanner.feed('rms"') == [CallPiece(0, "search", 'rms"')]
    found = [one for one in [*scanner.feed("}}</tool_call>"), *scanner.finish()] if isinstance(one, FoundCall)]
    assert [(one.number, one.call.arguments) for one in found] == [(0, '{"q": "storms"}')]


def test_arguments_of_no_tool_are_not_announced() -> None:
    scanner = Scanner(XML, TOOLS)
    assert scanner.feed('<tool_call>{"name": "nothing", "arguments": {"q": "sto') == []


MARKS = ["<", "`", "[", "{", "*", "#", "Action", "Tool", "Thought", "```", "\n", " ", "<to", "<|", "[TOOL", '{"', ":"]
without_markers = st.text(alphabet=st.characters(blacklist_characters="<[{`~|*#:_-(◁", blacklist_categories=["Cs"]))
nearly_markers = st.lists(st.sampled_from(MARKS) | st.text(max_size=6), max_size=20).map("".join)


@given(without_markers, st.sampled_from(EVERYTHING), st.integers(1, 5))
def test_text_without_markers_is_never_changed(text: str, syntaxes: Sequence[Syntax], step: int) -> None:
    assert said(scan(text, 0, syntaxes)) == (text, "", [])
    assert said(scan(text, step, syntaxes)) == (text, "", [])


PROSE = [
    "Action: movies are great",
    "In this story, Action: she runs. Then: search (for her keys).",
    "| a | b |\n| --- | --- |\n| `<tool_call>` | x |\n",
    "    indented <tool\n\ttab < 5 && x > 3",
    "```python\nAction: search\nAction Input: {}\n<tool_call>{}</tool_call>\n```\nand on",
    "```json\n{\"name\": \"Bob\", \"age\": 5}\n```\n",
    "Use `<tool_call>` to call, or `Action:`. Final thoughts follow.",
    "The function: f(x) = x. The tool: a hammer. Tools: none.",
    "# Tools for gardeners\n## Action movies\n**Action** and **Tool**s",
    "<function of x> <b>bold</b> <think about it> [link](http://x) [1] [TOOLS]",
    "Final answer: 42, **Final Answer:** 42",
    "a  \n\n\n   b\t\n",
]  # fmt: skip


@pytest.mark.parametrize("text", PROSE)
def test_prose_that_resembles_calls_is_unchanged(text: str) -> None:
    for step in (0, 1, 3):
        assert said(scan(text, step, SYNTAXES)) == (text, "", [])


@pytest.mark.parametrize(
    "line",
    ["```tool_code", '<think> "</think>"', "~~~ ``` ~~~", "a `<tool_call>` b", '</think> "</think>" <|im_end|>'],
)
def test_many_lines_with_false_markers_are_unchanged(line: str) -> None:
    text = "```\n" + (line + "\n") * (40_000 // len(line))
    for step in (0, 7, 700):
        assert said(scan(text, step, SYNTAXES)) == (text, "", [])


@given(nearly_markers, st.sampled_from(EVERYTHING), st.data())
def test_whole_or_cut_anywhere_the_result_is_the_same(
    text: str, syntaxes: Sequence[Syntax], data: st.DataObject
) -> None:
    whole = said(scan(text, 0, syntaxes))
    assert said(scan(text, 1, syntaxes)) == whole
    at = data.draw(st.integers(0, len(text)))
    scanner = Scanner(syntaxes, TOOLS)
    assert said([*scanner.feed(text[:at]), *scanner.feed(text[at:]), *scanner.finish()]) == whole


MAX_HELD_CHARS = 80


HELD_UP = [
    *(text for text in PROSE if "Final answer" not in text),
    "Action: " + "a" * 300,
    "<tool_call is a tag that goes on" + " and on" * 30,
    "<function name is" + " long" * 30,
    "`" * 200,
    "```" + "a" * 200,
    '```json\n{"name": "Ada", "text": "' + "w" * 300,
]


@pytest.mark.parametrize("text", HELD_UP)
@pytest.mark.parametrize("syntaxes", EVERYTHING, ids=["native", "react", "xml"])
def test_at_most_80_characters_of_text_are_held_back(text: str, syntaxes: Sequence[Syntax]) -> None:
    scanner = Scanner(syntaxes, TOOLS)
    shown = 0
    for at, character in enumerate(text):
        shown += sum(len(one.text) for one in scanner.feed(character) if isinstance(one, TextPiece | ReasoningPiece))
        assert at + 1 - shown <= MAX_HELD_CHARS


LONG = {
    "text": "word " * 200_000,
    "openers": "action: <tool_call" * 60_000,
    "a block that never ends": '<tool_call>{"name": "search", "arguments": {"q": "' + "x" * 1_000_000,
    "an action that never ends": 'Action: search\nAction Input: {"q": "' + "x\\n" * 330_000,
    "brackets": "[{" * 500_000,
    "fences": "```\n" * 250_000,
    "white space": " \n" * 500_000,
    "reasoning": "<think>" + "hm " * 330_000,
}


# Quadratic time would be minutes.
@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
@pytest.mark.parametrize("syntaxes", [XML, REACT, SYNTAXES], ids=["xml", "react", "all"])
def test_a_megabyte_is_read_in_linear_time(text: str, syntaxes: Sequence[Syntax]) -> None:
    assert scan(text, 0, syntaxes)


@pytest.mark.timeout(150)
def test_a_long_block_that_comes_in_small_pieces_is_read_in_linear_time() -> None:
    text = '<tool_call>{"name": "search", "arguments": {"q": "' + "words " * 30_000 + '"}}</tool_call>'
    shown = scan(text, 4, XML)
    assert said(shown)[2] == [("search", '{"q": "' + "words " * 30_000 + '"}', False)]


@pytest.mark.parametrize(
    "data",
    [
        '{"name": "Ada", "age": 36, ',
        "[print(1), print(2), ",
        '{"arguments": [' + "1, " * 60,
        '[{"name": "Ada", "born": 1815}, ',
    ],
)
def test_data_without_a_tools_name_is_not_held_back(data: str) -> None:
    scanner = Scanner(SYNTAXES, {"search": {}})
    shown = "".join(piece.text for char in data for piece in scanner.feed(char) if isinstance(piece, TextPiece))
    assert len(data) - len(shown) <= 80
    assert shown.startswith(data[:12])
