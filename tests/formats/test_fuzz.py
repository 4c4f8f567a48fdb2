"""Any output is read without exceptions and calls of unknown tools, equally in pieces, and in linear time."""

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from callboard._formats import FormatChoice, ReasoningPiece, TextPiece, ToolFormat
from callboard.calls import ToolCall
from callboard.models import ChatDict, TextDelta
from callboard_formats import StreamParser
from callboard_formats.formats import SYNTAXES, list_formats
from callboard_formats.names import resolve_name
from tests.formats.corpus import SCHEMAS, TOOLS, Entry, Meant, corpus, cut, meant
from tests.formats.timing import ATTEMPTS, is_linear, seconds, seconds_of_row

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
        assert content == text or calls or thinks, text
        assert all(resolve_name(call.name, SCHEMAS) for call in calls), text


def rescued(pieces: list[str]) -> tuple[str, str, list[ToolCall]]:
    """Return the content, the reasoning and the calls, without ids, of an answer with `auto`."""
    reader = FormatChoice("auto").for_name("m").reader(TOOLS, str)
    shown = [one for piece in pieces for one in reader.feed(TextDelta(piece))] + reader.finish()
    content = "".join(one.text for one in shown if isinstance(one, TextPiece))
    reasoning = "".join(one.text for one in shown if isinstance(one, ReasoningPiece))
    return content, reasoning, [replace(call, id="") for call in reader.calls()]


UNITS: dict[str, Callable[[str], str]] = {
    "repeated": lambda opener: opener,
    "on lines": lambda opener: f"{opener}\n",
    "before words": lambda opener: f"{opener} search of the north ",
    "with an open string": lambda opener: f'{opener}{{"name": "search", "arguments": {{"query": "',
    "nested": lambda opener: f'{opener}{{"name": "search", "arguments": {{',
}


@pytest.mark.slow
def test_calls_without_an_end_in_a_thought_are_read_in_linear_time() -> None:
    unit = '<tool_call>{"name": "search", "arguments": {"query": "a'
    assert is_linear(lambda size: seconds("<think>" + unit * (size // len(unit))))


@pytest.mark.parametrize("before", ["", "I call ", "<think>"])
@pytest.mark.parametrize(
    "unit",
    [
        '{"name": "now", "parameters": {}}\n' * 7 + "and so on\n",
        '{"name": "now", "parameters": {}}\n',
        "[now()]\n<|eot_id|>",
        "I write <function=later>{ ",
        "Between <tool_call>and</tool_call> ",
        "The <|python_tag|> token ",
        "[TOOL_CALLS] [] ",
        '<function name="now"><b>',
        "<tool_call>\n",
    ],
)
@pytest.mark.slow
def test_quoted_text_is_read_in_linear_time(unit: str, before: str) -> None:
    assert is_linear(lambda size: seconds(before + unit * (size // len(unit)) + "and so on"))


@pytest.mark.thorough
@pytest.mark.parametrize("format_name", ["rescue", "auto"])
@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_the_length_of_the_output_and_no_faster(unit: str, format_name: str) -> None:
    for opener in (*UNLIKE, *TAGS):
        assert is_linear(partial(seconds_of_row, UNITS[unit](opener), format_name)), opener


WHOLE = {
    "Hermes": '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n',
    "JSON": '{"name": "now", "arguments": {}}\n',
    "ReAct": "Action: now\nAction Input: {}\n",
    "XML": '<invoke name="now"></invoke>\n',
    "back-ticks": "` `` ``` a\n",
    "HTML": "<pre> <!-- </pre> -->\n",
    "brackets": "]]]]}}}}",
}


def seconds_in_pieces(text: str, messages: Sequence[ChatDict] = (), format_name: ToolFormat = "auto") -> float:
    """Return the processor time for an answer that arrives in small pieces."""
    reader = FormatChoice(format_name).for_name("m").reader(TOOLS, str, messages)
    began = time.process_time()
    for place in range(0, len(text), 8):
        reader.feed(TextDelta(text[place : place + 8]))
    reader.finish()
    return time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("row", WHOLE)
def test_with_auto_rows_of_calls_are_read_in_linear_time(row: str) -> None:
    def streamed(size: int) -> float:
        text = WHOLE[row] * (size // len(WHOLE[row]))
        return seconds_in_pieces(text, [{"role": "tool", "tool_call_id": "x", "content": text[: size // 2] + "?"}])

    assert is_linear(streamed)


@pytest.mark.parametrize(
    ("format_name", "unit"),
    [
        ("react", '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n'),
        ("xml", "Action: now\nAction Input: {}\n"),
    ],
)
def test_calls_in_another_syntax_that_are_text_are_read_in_linear_time(format_name: ToolFormat, unit: str) -> None:
    assert is_linear(lambda size: seconds_in_pieces(unit * (size // len(unit)) + "x", (), format_name))


LONG_ANSWERS = {
    "a line without an end": ("It is ", "warm and "),
    "blanks": ("It is warm.\n", " "),
    "blanks behind an empty action": ("It is warm.\nAction: None\n", " "),
    "blanks behind a label": ("It is warm.\nAction:", " "),
    "blank lines": ("It is warm.", "\n"),
    "blank lines behind an empty action": ("It is warm.\nAction: None", "\n"),
    "empty actions": ("It is warm.\n", "Action: None\n"),
    "back-ticks": ("", "`"),
    "blanks behind a fence's marks": ("~~~", " "),
}


@pytest.mark.slow
@pytest.mark.parametrize("answer", LONG_ANSWERS)
def test_with_auto_a_long_answer_without_calls_is_shown_in_linear_time(answer: str) -> None:
    before, unit = LONG_ANSWERS[answer]
    # Each character costs little, so a measurable time needs many.
    assert is_linear(lambda size: seconds_in_pieces(before + unit * (10 * size // len(unit))))


BLANKS = (" ", "\n", "\t ", "\r\n")
BLANKS_LENGTH = 10_000
BLANKS_SECONDS = 0.25


@pytest.mark.thorough
def test_a_long_row_of_blanks_anywhere_costs_no_more_than_other_text() -> None:
    # Two adjacent patterns for blanks would try every division: a second at this length.
    chance = random.Random("blanks")
    for entry in corpus():
        for blank in BLANKS:
            place = chance.randint(0, len(entry.output))
            text = entry.output[:place] + blank * (BLANKS_LENGTH // len(blank)) + entry.output[place:]
            assert any(seconds(text) < BLANKS_SECONDS for _ in range(ATTEMPTS)), (entry, blank, place)


LONG = ("It rains {north} \\n [x] <b> and 'so' | on, " * 30_000)[:1_000_000]
AROUND = {
    "nothing": ("", ""),
    "a fence": ("```python\n", "\n```"),
    "reasoning": ("<think>", "</think>"),
    "Hermes": ('<tool_call>{"name": "write_file", "arguments": {"path": "a", "content": "', '"}}</tool_call>'),
    "Qwen3-Coder": ("<function=write_file><parameter=path>a</parameter><parameter=content>", "</parameter></function>"),
    "GLM": ("<tool_call>search<arg_key>query</arg_key><arg_value>", "</arg_value></tool_call>"),
    "Mistral": ('[TOOL_CALLS]search[ARGS]{"query": "', '"}'),
    "DeepSeek": ('<｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "', '"}<｜tool▁call▁end｜>'),
    "Kimi": ('<|tool_call_begin|>search<|tool_call_argument_begin|>{"query": "', '"}<|tool_call_end|>'),
    "harmony": ('<|channel|>commentary to=functions.search<|message|>{"query": "', '"}<|call|>'),
    "Gemma": ("<start_function_call>call:search{query:<escape>", "<escape>}<end_function_call>"),
    "tool_code": ('```tool_code\nsearch(query="', '")\n```'),
    "Llama": ('{"name": "search", "parameters": {"query": "', '"}}'),
    "Python": ('[search(query="', '")]'),
    "ReAct": ('Action: search\nAction Input: {"query": "', '"}'),
}  # fmt: skip


# Quadratic time would be minutes.
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("format_name", ["rescue", "auto"])
def test_a_million_characters_are_read_in_linear_time(around: str, closed: bool, format_name: str) -> None:
    before, after = AROUND[around]
    seconds(before + LONG + (after if closed else ""), format_name)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["rescue", "auto"])
@pytest.mark.parametrize("around", AROUND)
def test_a_long_block_costs_no_more_because_it_comes_in_pieces(around: str, format_name: str) -> None:
    before, after = AROUND[around]

    def streamed(size: int) -> float:
        text = before + LONG[:size] + after
        began = time.process_time()
        pieces = [text[place : place + 8] for place in range(0, len(text), 8)]
        read(pieces) if format_name == "rescue" else rescued(pieces)
        return time.process_time() - began

    assert is_linear(streamed)
