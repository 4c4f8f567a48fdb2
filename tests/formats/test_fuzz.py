"""Any output is read without exceptions and calls of unknown tools, equally in pieces, early, and in linear time."""

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from callboard._formats import FormatChoice, ReasoningPiece, TextPiece, ToolFormat, parse
from callboard.calls import ToolCall
from callboard.models import ChatDict, TextDelta
from callboard_formats import StreamParser
from callboard_formats.cleaning import Cleaner
from callboard_formats.formats import SYNTAXES, list_formats, syntaxes_of
from callboard_formats.names import resolve_name
from callboard_formats.output import CallPiece, FoundCall, Shown
from callboard_formats.scanner import Scanner
from callboard_formats.syntax import Syntax
from tests.formats.corpus import SCHEMAS, TOOLS, Entry, Meant, corpus, cut, meant

REACT = syntaxes_of(["react"])
XML = syntaxes_of(["xml"])

MUTATIONS = 20_000
PER_BATCH = 1_000
CUT_EVERY = 4

OPENERS = sorted({opener for one in SYNTAXES for opener in one.openers})
TAGS = sorted({text for one in SYNTAXES for tag in one.reasoning for text in (tag.opener, tag.closer)})
# One of each group of openers that differ only in decoration, such as ReAct's labels.
UNLIKE = sorted({re.sub(r"[\s#*_`>-]", "", opener): opener for opener in reversed(OPENERS)}.values())
SCAFFOLDING = ("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "**Final Answer:**")
STOPS = sorted({stop for one in SYNTAXES for stop in one.stops})
FRAGMENTS = [
    *OPENERS, *TAGS, *STOPS, "\n", "\r\n", "```", "```json\n", "~~~", "`", '"', "'", "\\", '\\"', "{", "}", "[", "]",
    "(", ")", "<", ">", "|", ":", ",", "{}", '{"name": "', '"arguments": {', "</tool_call>", "</function>", "<|end|>",
    "<|message|>", "search", "now", "write_file", "functions.now:0", "\u2028", "\x00", "🎭", "｜", " " * 90, "null",
    "1e999",
]  # fmt: skip


def mutated(text: str, others: tuple[Entry, ...], chance: random.Random) -> str:
    """Return `text` with a few changes that a model, a server or a network might make."""
    for _ in range(chance.randint(1, 4)):
        start, end = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
        fragment = chance.choice(FRAGMENTS)
        match chance.randrange(8):
            case 0:
                text = text[:start]
            case 1:
                text = text[:start] + text[min(end, start + 12) :]
            case 2:
                text = text[:start] + fragment + text[start:]
            case 3:
                text = text[:start] + fragment + text[start + len(fragment) :]
            case 4:
                text = text[:end] + text[start:end] + text[end:]
            case 5:
                text = text[:start] + text[start:end].swapcase() + text[end:]
            case 6:
                other = chance.choice(others).output
                text = text[:start] + other[chance.randint(0, len(other)) :]
            case _:
                place = chance.randint(0, len(text))
                text = (
                    text[:place]
                    + chr(chance.choice((0, 9, 10, 13, 34, 39, 60, 92, 123, 125, 8232)))
                    + text[place + 1 :]
                )
    return text


@pytest.mark.parametrize("batch", range(MUTATIONS // PER_BATCH))
def test_no_mutation_of_the_corpus_raises_or_calls_an_unknown_tool(batch: int, stride: int) -> None:
    chance = random.Random(batch)
    every = corpus()
    for number in range(PER_BATCH // stride):
        formats = chance.choice([None, None, [chance.choice(list_formats())]])
        text = mutated(chance.choice(every).output, every, chance)
        whole = read([text], formats)
        assert all(isinstance(arguments, str) or name in SCHEMAS for name, arguments in whole.calls), text
        if number % CUT_EVERY == 0:
            places = sorted(chance.randint(0, len(text)) for _ in range(3))
            assert read(cut(text, *places), formats) == whole, (formats, text, places)


def read(pieces: list[str], formats: list[str] | None = None) -> Meant:
    """Return the meaning of an answer that arrives in these pieces."""
    parser = StreamParser([tool.schema() for tool in TOOLS], formats)
    shown = [one for piece in pieces for one in parser.feed(piece)] + parser.finish()
    content = "".join(one.text for one in shown if isinstance(one, TextPiece))
    reasoning = "".join(one.text for one in shown if isinstance(one, ReasoningPiece))
    return Meant(content, reasoning, tuple(map(meant, parser.calls)))


LONE_TAGS = re.compile(r"(?:\s*</?(?:(?:tool|function)_call|function)>)*\s*", re.IGNORECASE)
"""The tags that are removed from the end of an answer that shows no call."""


def test_with_auto_no_mutation_loses_a_character_or_calls_an_unknown_tool(stride: int) -> None:
    chance = random.Random("auto")
    every = corpus()
    for _ in range(PER_BATCH // stride):
        text = mutated(chance.choice(every).output, every, chance)
        places = sorted(chance.randint(0, len(text)) for _ in range(3))
        whole, pieces = (rescued(parts) for parts in ([text], cut(text, *places)))
        assert whole == pieces, (text, places)
        content, reasoning, calls = whole
        if text.lstrip().startswith(SCAFFOLDING):
            # A whole ReAct transcript is shown without its labels: see `test_react_labels.py`.
            continue
        thinks = text.lstrip().lower().startswith("<think>")
        assert not reasoning or thinks, text
        # All text is shown except the tags of reasoning and white space beside them.
        assert text.startswith(content) if not thinks else content in text, text
        assert calls or thinks or LONE_TAGS.fullmatch(text.removeprefix(content)), text
        assert all(resolve_name(call.name, SCHEMAS) for call in calls), text


def rescued(pieces: list[str]) -> tuple[str, str, list[ToolCall]]:
    """Return the content, the reasoning and the calls, without ids, of an answer with `auto`."""
    reader = FormatChoice("auto").for_name("m").reader(TOOLS, str)
    shown = [one for piece in pieces for one in reader.feed(TextDelta(piece))] + reader.finish()
    content = "".join(one.text for one in shown if isinstance(one, TextPiece))
    reasoning = "".join(one.text for one in shown if isinstance(one, ReasoningPiece))
    return content, reasoning, [replace(call, id="") for call in reader.calls()]


# ------------------------------------------------------------------------------------------------- shown early


def scan(text: str, step: int = 0, syntaxes: Sequence[Syntax] = SYNTAXES) -> list[Shown]:
    scanner = Scanner(syntaxes, SCHEMAS)
    parts = [text[at : at + step] for at in range(0, len(text), step)] if step else [text]
    return [one for part in parts for one in scanner.feed(part)] + scanner.finish()


def said(shown: Sequence[Shown]) -> tuple[str, str, list[tuple[str, str, bool]]]:
    """Return the text, the reasoning and the calls."""
    return (
        "".join(one.text for one in shown if isinstance(one, TextPiece)),
        "".join(one.text for one in shown if isinstance(one, ReasoningPiece)),
        [(one.call.name, one.call.arguments, one.call.truncated) for one in shown if isinstance(one, FoundCall)],
    )


def test_arguments_are_shown_while_they_are_written() -> None:
    scanner = Scanner(XML, SCHEMAS)
    for part in ('<tool_call>{"name"', ': "search", "arguments": '):
        assert scanner.feed(part) == []
    assert scanner.feed('{"q": "sto') == [CallPiece(0, "search", '{"q": "sto')]
    assert scanner.feed('rms"') == [CallPiece(0, "search", 'rms"')]
    found = [one for one in [*scanner.feed("}}</tool_call>"), *scanner.finish()] if isinstance(one, FoundCall)]
    assert [(one.number, one.call.arguments) for one in found] == [(0, '{"q": "storms"}')]
    assert Scanner(XML, SCHEMAS).feed('<tool_call>{"name": "nothing", "arguments": {"q": "sto') == []


PROSE = [
    "In this story, Action: she runs. Then: search (for her keys).",
    "| a | b |\n| --- | --- |\n| `<tool_call>` | x |\n",
    "    indented <tool\n\ttab < 5 && x > 3",
    "```python\nAction: search\nAction Input: {}\n<tool_call>{}</tool_call>\n```\nand on",
    "```json\n{\"name\": \"Bob\", \"age\": 5}\n```\n",
    "The function: f(x) = x. The tool: a hammer. Tools: none.",
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


MAX_HELD_CHARS = 80


HELD_UP = [
    *(text for text in PROSE if "Final answer" not in text),
    "Action: " + "a" * 300,
    "<tool_call is a tag that goes on" + " and on" * 30,
    "```" + "a" * 200,
    '```json\n{"name": "Ada", "text": "' + "w" * 300,
]


@pytest.mark.parametrize("text", HELD_UP)
@pytest.mark.parametrize("syntaxes", [SYNTAXES, REACT, XML], ids=["native", "react", "xml"])
def test_at_most_80_characters_of_text_are_held_back(text: str, syntaxes: Sequence[Syntax]) -> None:
    scanner = Scanner(syntaxes, SCHEMAS)
    shown = 0
    for at, character in enumerate(text):
        shown += sum(len(one.text) for one in scanner.feed(character) if isinstance(one, TextPiece | ReasoningPiece))
        assert at + 1 - shown <= MAX_HELD_CHARS


@pytest.mark.parametrize(
    "data",
    [
        '{"name": "Ada", "age": 36, ',
        '{"arguments": [' + "1, " * 60,
        '[{"name": "Ada", "born": 1815}, ',
    ],
)
def test_data_without_a_tools_name_is_not_held_back(data: str) -> None:
    scanner = Scanner(SYNTAXES, {"search": {}})
    shown = "".join(piece.text for char in data for piece in scanner.feed(char) if isinstance(piece, TextPiece))
    assert len(data) - len(shown) <= 80
    assert shown.startswith(data[:12])


def test_a_call_behind_a_quotation_mark_is_quoted() -> None:
    for opener in (*UNLIKE, *TAGS):
        for mark in ("`", "„"):
            assert said(scan(f'a {mark}{opener}now {{"name": "now"}}'))[2] == [], (opener, mark)


# ------------------------------------------------------------------------------------------------- linear time

SMALL = 2_500
LARGE = 20_000
# Linear time is 8 times as long, quadratic time 64 times.
GROWTH = 24
SLACK_SECONDS = 0.1
ATTEMPTS = 3


def is_linear(measure: Callable[[int], float]) -> bool:
    """Return whether eight times the text takes at most `GROWTH` times as long; repeated on a busy machine."""
    return any(measure(LARGE) < measure(SMALL) * GROWTH + SLACK_SECONDS for _ in range(ATTEMPTS))


def repeated(unit: str, size: int) -> str:
    return unit * (size // len(unit))


def seconds(text: str, format_name: ToolFormat = "rescue") -> float:
    """Return the processor time for an answer that arrives whole."""
    began = time.process_time()
    parse(text, [tool.schema() for tool in TOOLS], format_name)
    return time.process_time() - began


def seconds_of_row(unit: str, format_name: ToolFormat, size: int) -> float:
    return seconds(repeated(unit, size), format_name)


def seconds_in_pieces(text: str, format_name: ToolFormat = "auto", messages: Sequence[ChatDict] = ()) -> float:
    """Return the processor time for an answer that arrives in small pieces."""
    reader = FormatChoice(format_name).for_name("m").reader(TOOLS, str, messages)
    began = time.process_time()
    for place in range(0, len(text), 8):
        reader.feed(TextDelta(text[place : place + 8]))
    reader.finish()
    return time.process_time() - began


OBJECT = '{"name": "now", "parameters": {}}'
HERMES = '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n'
REACT_CALL = "Action: now\nAction Input: {}\n"
HOSTILE: list[tuple[str, str, str, ToolFormat]] = [
    ("<think>", '<tool_call>{"name": "search", "arguments": {"query": "a', "", "rescue"),
    ("I call ", f"{OBJECT}\n" * 7 + "and so on\n", "", "rescue"),
    ("", "[now()]\n<|eot_id|>", "and so on", "rescue"),
    ("I call ", "I write <function=later>{ ", "", "rescue"),
    ("<think>", "[TOOL_CALLS] [] ", "", "rescue"),
    ("", "action: <tool_call", "", "rescue"),
    ("", "```\n", "", "rescue"),
    ("<function=a><parameter=", " ", "", "xml"),
    ("", '```xml\n<tool_call>{"q": "\n```\n', "and so on", "xml"),
    ("", REACT_CALL, "x", "xml"),
    ("", "Thought: ```\nThought: ", "", "react"),
    ("", "```\nAction: search\n", "", "react"),
    ("", "Action: search\nAction Input: a\naction: b\n", "", "react"),
    ("", "Action: search\nAction Input:\n```\n```\n", "", "react"),
    ("", f"{OBJECT}\n", "", "auto"),
    ("", "<pre> <!-- </pre> -->\n", "", "auto"),
    ("It is ", "warm and ", "", "auto"),
    ("It is warm.\nAction: None\n", " ", "", "auto"),
    ("~~~", " ", "", "auto"),
]


@pytest.mark.parametrize(("before", "unit", "behind", "format_name"), HOSTILE)
def test_a_hostile_answer_is_read_in_linear_time(before: str, unit: str, behind: str, format_name: ToolFormat) -> None:
    def streamed(size: int) -> float:
        text = before + repeated(unit, size) + behind
        told: list[ChatDict] = [{"role": "tool", "tool_call_id": "x", "content": text[: size // 2] + "?"}]
        return seconds_in_pieces(text, format_name, told if format_name == "auto" else ())

    assert is_linear(lambda size: seconds(before + repeated(unit, size) + behind, format_name))
    assert is_linear(streamed)


LONG = repeated("It rains {north} \\n [x] <b> and 'so' | on, ", LARGE)
AROUND = {
    "nothing": ("", ""),
    "a fence": ("```python\n", "\n```"),
    "reasoning": ("<think>", "</think>"),
    "Hermes": ('<tool_call>{"name": "write_file", "arguments": {"path": "a", "content": "', '"}}</tool_call>'),
    "Qwen3-Coder": ("<function=write_file><parameter=path>a</parameter><parameter=content>", "</parameter></function>"),
    "Gemma": ("<start_function_call>call:search{query:<escape>", "<escape>}<end_function_call>"),
    "Python": ('[search(query="', '")]'),
    "ReAct": ('Action: search\nAction Input: {"query": "', '"}'),
}


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("around", AROUND)
def test_a_long_block_is_read_in_linear_time(around: str, is_closed: bool) -> None:
    before, after = AROUND[around]
    behind = after if is_closed else ""
    assert is_linear(lambda size: seconds_in_pieces(before + LONG[:size] + behind, "rescue"))
    assert is_linear(lambda size: seconds_in_pieces(before + LONG[:size] + behind, "auto"))


@pytest.mark.parametrize(
    ("before", "unit"),
    [
        ("", "<|im_end|>\n"),
        ("", '{"tool_uses":'),
        ("", "<tool_response>\n\n"),
        ('<tool_call>{"a":"', "x"),
        ("</s>", " "),
        ("Final Answer:\n", "Observation: x\n"),
    ],
)
def test_a_hostile_answer_is_cleaned_in_linear_time(before: str, unit: str) -> None:
    def cleaned(size: int) -> float:
        text = before + repeated(unit, 4 * size)
        cleaner = Cleaner(("react",), "mistral")
        began = time.process_time()
        for place in range(0, len(text), 100):
            cleaner.feed(text[place : place + 100])
        cleaner.finish()
        return time.process_time() - began

    assert is_linear(cleaned)


UNITS: dict[str, Callable[[str], str]] = {
    "repeated": lambda opener: opener,
    "on lines": lambda opener: f"{opener}\n",
    "before words": lambda opener: f"{opener} search of the north ",
    # Two adjacent patterns for blanks would try every division.
    "before blanks": lambda opener: opener + " \n" * 500,
    "with an open string": lambda opener: f'{opener}{{"name": "search", "arguments": {{"query": "',
    "nested": lambda opener: f'{opener}{{"name": "search", "arguments": {{',
}


@pytest.mark.thorough
@pytest.mark.parametrize("format_name", ["rescue", "auto"])
@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_the_length_of_the_output_and_no_faster(unit: str, format_name: ToolFormat) -> None:
    for opener in (*UNLIKE, *TAGS):
        assert is_linear(partial(seconds_of_row, UNITS[unit](opener), format_name)), opener
