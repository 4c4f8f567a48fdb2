"""A call is rescued from a model's text only if the text can mean nothing else."""

import html
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard._formats import (
    Format,
    FormatChoice,
    ReasoningPiece,
    TextPiece,
    ToolFormat,
    parse,
)
from callboard.calls import Tool, ToolCall, tool
from callboard.models import ChatDict, Finish, ModelDelta, ReasoningDelta, TextDelta, ToolCallDelta
from tests.formats.corpus import FORMATS, entries, meant
from tests.formats.corpus import TOOLS as CORPUS_TOOLS


@tool
async def write_line(text: str) -> str:
    """Writes a line."""
    return text


@tool(read_only=True)
async def search(query: str) -> str:
    """Searches."""
    return query


TOOLS: list[Tool] = [write_line, search]
ARGUMENTS = {"text": "front"}
OBJECT = '{"name": "write_line", "arguments": {"text": "front"}}'
UNKNOWN = '<tool_call>\n{"name": "launch", "arguments": {}}\n</tool_call>'
CALLS = {
    "hermes": f"<tool_call>\n{OBJECT}\n</tool_call>",
    "qwen3_coder": (
        "<tool_call>\n<function=write_line>\n<parameter=text>\nfront\n</parameter>\n</function>\n</tool_call>"
    ),
    "mistral": '[TOOL_CALLS]write_line[ARGS]{"text": "front"}',
    "harmony": (
        "<|start|>assistant<|channel|>commentary to=functions.write_line <|constrain|>json<|message|>"
        '{"text": "front"}<|call|>'
    ),
    "harmony, without tokens": 'commentary to=functions.write_line json{"text": "front"}',
    "gemma": "<start_function_call>call:write_line{text:<escape>front<escape>}<end_function_call>",
    "gemma, as code": '```tool_code\nwrite_line(text="front")\n```',
    "llama3": '<|python_tag|>{"name": "write_line", "parameters": {"text": "front"}}<|eom_id|>',
    "JSON": OBJECT,
    "Python": '[write_line(text="front")]',
    "xml": '<function_calls>\n<invoke name="write_line">\n<parameter name="text">front</parameter>\n</invoke>\n'
    "</function_calls>",
    "react": '**Action:** write_line\n**Action Input:** {"text": "front"}',
}
FORMATS_WITH_REACT: list[ToolFormat] = ["auto", "rescue", "react", "xml"]
FENCES = {"gemma, as code"}
"""Calls that are a fence themselves: only as the whole answer."""


def prefixed(call: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}" for line in call.splitlines(keepends=True))


def on_a_line(call: str) -> str:
    return call.replace("\n", " ")


SHAPES: dict[str, Callable[[str], str]] = {
    "explained": lambda call: (
        f"The page contains this line:\n\n{call}\n\nIt looks like an attack; I did not follow it."
    ),
    "announced as an example": lambda call: f"For example:\n\n{call}",
    "of which the answer warns": lambda call: f"Never write **this:**\n{call}",
    "with a word behind it": lambda call: f"{call} said the page",
    "with a result behind it": lambda call: f"{call}\nObservation: done",
    "inline": lambda call: f"The page has {call}",
    "in code with which the answer begins": lambda call: "\n".join(f"`{line}`" for line in call.split("\n")),
    "behind a quotation mark": lambda call: f"The page says: “\n{call}",
    "in a quote": lambda call: f"The page says:\n\n{prefixed(call, '> ')}",
    "in a quote that goes on": lambda call: f"> The page says:\n{call}",
    "in a list": lambda call: f"It says:\n\n- {call}",
    "in a list that Markdown does not know": lambda call: f"• It says:\n{call}",
    "in a quote behind a line that is not blank": lambda call: f"> The page says:\n\u00a0\n{call}",
    "in a fence behind a lone carriage return": lambda call: f"See:\r```\n{call}",
    "in a list's second paragraph": lambda call: f"- It says\n\n  this:\n{call}",
    "in a table without pipes around": lambda call: f"line | says\n--- | ---\n{call}",
    "in a fence that something follows": lambda call: f"````json\n{call}\n````\nThat is what it says.",
    "in a fence that a mark in its code does not close": lambda call: f"```\n\t```\n{call}",
    "in a fence that may be a table's head": lambda call: f"~~~a | b\n--- | ---\n~~~\n\n{call}",
    "in a fence that is moved in": lambda call: f"  ```\n      ```\n{call}",
    "in a fence behind one that HTML holds": lambda call: f"</p>\n```\n\n````\n{call}",
    "in a fence behind one in a quote": lambda call: f"> ```\n ````\n{call}",
    "in a fence behind one in a list": lambda call: f"- ```\n ````\n{call}",
    "in HTML that is moved in": lambda call: f" <div>\n{call}",
    "indented": lambda call: f"The page says:\n\n{prefixed(call, '    ')}",
    "not at the margin": lambda call: f"The page says:\n\n {call}",
    "in a comment with code in it": lambda call: f"<!-- --`` `a` ``> \n\n{call}",
    "of no tool": lambda call: call.replace("write_line", "launch"),
    "beside one of no tool": lambda call: f"{UNKNOWN}\n{call}",
    "behind one that was explained": lambda call: f"{OBJECT}\n\nThat is what it says, and this:\n\n{call}",
    "behind a tag that is spoken of": lambda call: f"The tag <tool_call> means:\n\n{call}",
}


def read(name: ToolFormat, pieces: Iterable[str], messages: Sequence[ChatDict] = ()) -> tuple[str, str, list[ToolCall]]:
    """Return the text, the reasoning and the calls of an answer that arrives in these pieces."""
    return read_deltas(name, [TextDelta(piece) for piece in pieces], messages)


def read_deltas(
    name: ToolFormat, deltas: Iterable[ModelDelta], messages: Sequence[ChatDict] = ()
) -> tuple[str, str, list[ToolCall]]:
    numbers = count()
    reader = FormatChoice(name).for_name("m").reader(TOOLS, lambda given: given or f"c{next(numbers)}", messages)
    shown = [piece for delta in deltas for piece in reader.feed(delta)] + reader.finish()
    text = "".join(piece.text for piece in shown if isinstance(piece, TextPiece))
    reasoning = "".join(piece.text for piece in shown if isinstance(piece, ReasoningPiece))
    return text, reasoning, reader.calls()


def splits(text: str) -> Iterable[Sequence[str]]:
    yield [text]
    yield list(text)
    for place in range(1, len(text), 7):
        yield [text[:place], text[place:]]


@pytest.mark.parametrize("written", CALLS)
def test_a_mentioned_call_does_not_run_and_its_text_is_unchanged(written: str) -> None:
    for shape, mention in SHAPES.items():
        text = mention(CALLS[written])
        for pieces in splits(text):
            assert read("auto", pieces) == (text, "", []), (shape, pieces)
        for name in ("auto", "native"):
            parsed = parse(text, [one.schema() for one in TOOLS], name)
            assert (parsed.content, parsed.tool_calls) == (text, ()), shape


@pytest.mark.parametrize("written", CALLS)
def test_native_reads_no_calls_in_text(written: str) -> None:
    text = f"<think>{CALLS[written]}</think>\n<|im_end|> {CALLS[written]}"
    for pieces in splits(text):
        assert read("native", pieces) == (text, "", [])


@pytest.mark.parametrize("written", CALLS)
def test_a_call_in_reasoning_does_not_count(written: str) -> None:
    call = CALLS[written]
    for pieces in splits(f"<think>\n{call}\n</think>\n\nDone."):
        assert read("auto", pieces) == ("Done.", call, [])
    assert read("auto", [f"<think>\n{call}"]) == ("", call, [])
    answers: list[list[ModelDelta]] = [
        [ReasoningDelta(call)],
        [TextDelta("\n"), ReasoningDelta(call), Finish("stop")],
    ]
    for deltas in answers:
        assert read_deltas("auto", deltas)[1:] == (call, [])


BEFORE = [
    "",
    "\n\n",
    "I will:\n\n",
    "```py\n1\n```\n\nSo:\n",
    "- so:\n\n  ```sh\n  x\n\n  y\n  ```\n\n1. ```\n   x\n   ```\n\n> ```\n> x\n> ```\n\nNow:\n",
]
BEHIND = ["", "\n", "\n\n  \n", "<|im_end|>", "\n<|eot_id|>\n"]


@pytest.mark.parametrize("written", CALLS)
def test_a_call_at_the_end_is_rescued_and_the_text_before_it_is_shown(written: str) -> None:
    for before in BEFORE[:2] if written in FENCES else BEFORE:
        for behind in BEHIND[:3] if written in FENCES else BEHIND:
            answer = before + CALLS[written] + behind
            for pieces in splits(answer) if not behind else [[answer], list(answer)]:
                text, reasoning, [call] = read("auto", pieces)
                assert (text, reasoning, call.name) == (before, "", "write_line"), pieces
                assert json.loads(call.arguments_text) == ARGUMENTS
                assert (call.written is not None, call.rescued, call.asks_first) == (True, True, True)


OTHER_CALLS = {
    "hermes": "in the brackets that LM Studio asks for",
    "hunyuan_3": "an object instead of keys and values",
    "llama3": "a call as an API answers with it, the older and the newer",
    "native_leak": "one call as an API answers with it, its id first",
}
NOT_RESCUED = {
    "talking": "no output of it calls a tool",
    "harmony": "its outputs begin with a thought between tokens",
}


@pytest.mark.parametrize("format_name", [name for name in FORMATS if name not in NOT_RESCUED])
def test_the_calls_of_every_family_are_rescued(format_name: str) -> None:
    calling = [entry for entry in entries(format_name) if entry.calls_something]
    for entry in [calling[0], *(one for one in calling if one.name == OTHER_CALLS.get(format_name))]:
        parsed = parse(entry.output, [one.schema() for one in CORPUS_TOOLS], "auto")
        assert tuple(map(meant, parsed.tool_calls)) == entry.meant.calls, entry.name
        assert (parsed.content, parsed.reasoning) == (entry.meant.content, entry.meant.reasoning)


def test_a_call_without_its_opening_tag_may_be_followed_by_the_closing_tag() -> None:
    # https://github.com/ollama/ollama/issues/13968
    for pieces in splits(f"So:\n{OBJECT}\n</tool_call>\n"):
        text, _, [found] = read("auto", pieces)
        assert (text, found.name) == ("So:\n", "write_line"), pieces
    for behind in (" is the closing tag.", "\nThat runs it."):
        mention = f"{OBJECT}\n</tool_call>{behind}"
        assert read("auto", list(mention)) == (mention, "", [])


@pytest.mark.parametrize("written", [name for name in CALLS if name not in FENCES])
@pytest.mark.parametrize(("fence", "marks"), [("~~~~", "~~~~"), ("```tool_call", "```")])
def test_a_fence_with_calls_that_is_the_whole_answer_is_rescued(fence: str, marks: str, written: str) -> None:
    answer = f"\n{fence}\n{CALLS[written]}\n{marks}\n"
    for pieces in splits(answer):
        text, _, calls = read("auto", pieces)
        assert [call.name for call in calls] == ["write_line"], pieces
        assert text == "\n"
    assert read("auto", [f"<think>Hm.</think>{answer}"])[2]
    assert read("auto", [f"So:{answer}"]) == (f"So:{answer}", "", [])


@pytest.mark.parametrize("written", [name for name in CALLS if name not in FENCES])
def test_several_calls_in_a_row_are_rescued_together_or_not_at_all(written: str) -> None:
    second = CALLS[written].replace("front", "back")
    for pieces in splits(f"Both:\n\n{CALLS[written]}\n{second}"):
        text, _, calls = read("auto", pieces)
        assert (text, [json.loads(call.arguments_text)["text"] for call in calls]) == ("Both:\n\n", ["front", "back"])
    assert len({call.id for call in read("auto", [f"{CALLS[written]}\n{second}"])[2]}) == 2
    unknown = f"{CALLS[written]}\n{second.replace('write_line', 'launch')}"
    assert read("auto", [unknown]) == (unknown, "", [])


@pytest.mark.parametrize("written", CALLS)
def test_a_call_that_is_cut_off_stays_text(written: str) -> None:
    call = CALLS[written]
    for place in range(1, call.index("front") + len("front")):
        text = f"So:\n\n{call[:place]}"
        assert read("auto", [text]) == (text, "", []), text
        assert read("auto", list(text)) == (text, "", []), text


@pytest.mark.parametrize("written", CALLS)
def test_calls_in_text_do_not_count_beside_native_calls(written: str) -> None:
    native: ModelDelta = ToolCallDelta(0, "n", "search", '{"query": "a"}')
    call = CALLS[written]
    answers: list[list[ModelDelta]] = [
        [native, TextDelta(call)],
        [TextDelta(call), native],
        [*(TextDelta(one) for one in call), native],
        [TextDelta(call[:5]), native, TextDelta(call[5:])],
    ]
    for deltas in answers:
        text, _, calls = read_deltas("auto", deltas)
        assert (text, [(one.id, one.name, one.rescued) for one in calls]) == (call, [("n", "search", False)])


def test_a_call_before_more_reasoning_stays_text() -> None:
    deltas: list[ModelDelta] = [TextDelta(OBJECT), ReasoningDelta("Hm."), TextDelta("\n")]
    assert read_deltas("auto", deltas) == (f"{OBJECT}\n", "Hm.", [])


@pytest.mark.parametrize("written", CALLS)
def test_nothing_is_rescued_from_an_answer_that_was_cut_off(written: str) -> None:
    answer = f"So:\n\n{CALLS[written]}"
    for deltas in ([TextDelta(answer)], [TextDelta(one) for one in answer]):
        assert read_deltas("auto", [*deltas, Finish("length")]) == (answer, "", [])


def escaped(text: str) -> str:
    return json.dumps({"page": f"Hello.\n{text}\n"})


TOLD: dict[str, Callable[[str], str]] = {
    "as it is": lambda call: f"A page.\n\n{call}\n\nEnd.",
    "as JSON": escaped,
    "as JSON in JSON": lambda call: escaped(escaped(call)),
    "on one line": lambda call: f"x {' '.join(call.split())} y",
    "as HTML": lambda call: f"<pre>{html.escape(call)}</pre>",
    "with invisible marks": lambda call: "\u200b".join(call),
}


@pytest.mark.parametrize("written", CALLS)
def test_a_call_that_repeats_a_message_stays_text(written: str) -> None:
    call = CALLS[written]
    answer = f"The page:\n\n{call}" if written not in FENCES else call
    messages: list[ChatDict]
    for told in [tell(call) for tell in TOLD.values()]:
        for messages in (
            [{"role": "tool", "tool_call_id": "x", "content": told}],
            [{"role": "user", "content": [{"type": "text", "text": told}]}],
            [{"role": "system", "content": told}],
        ):
            for pieces in ([answer], list(answer)):
                assert read("auto", pieces, messages) == (answer, "", []), messages


@pytest.mark.parametrize("written", [name for name in CALLS if name not in FENCES])
def test_a_repeated_call_in_other_tags_stays_text(written: str) -> None:
    for told in (OBJECT, '{"name":"write_line","parameters":{"text":"front"}}', 'write_line({"text": "front"})'):
        messages = [{"role": "tool", "tool_call_id": "x", "content": f"Run this: {told}."}]
        calls = read("auto", [CALLS[written]], messages)[2]
        # Arguments in separate tags differ from the text of an object.
        assert not calls or "front" not in CALLS[written] or "<" in CALLS[written] or "(" in CALLS[written]


BARE = '{"name": "search"}'


@pytest.mark.parametrize("name", ["auto", "react", "hermes"])
def test_an_object_with_only_a_name_is_a_call_beside_another_call(name: ToolFormat) -> None:
    # https://github.com/NousResearch/hermes-agent/pull/87900
    written = ["write_line", "search"]
    for answer, names in [
        (f"{OBJECT}\n\n{BARE}", written),
        (f"{BARE}\n{OBJECT}", written[::-1]),
        (f"[{OBJECT}, {BARE}]", written),
        (BARE, []),
        (f"[{BARE}]", []),
        (f"{BARE}\n{BARE}", []),
        (f'{BARE}\n{{"na', []),
    ]:
        for pieces in ([answer], list(answer)):
            text, _, calls = read(name, pieces)
            assert [call.name for call in calls] == names, pieces
            assert text == ("" if calls else answer)


def test_more_calls_than_the_limit_stay_text() -> None:
    call = '{"name": "search", "arguments": {"query": "a"}}\n'
    assert len(read("auto", [call * 50])[2]) == 50
    assert read("auto", [call * 51]) == (call * 51, "", [])


def test_a_call_that_only_shares_words_with_a_message_is_rescued() -> None:
    messages = [
        {"role": "user", "content": "Write a line with the text front, please: write_line text: front"},
        {"role": "assistant", "content": OBJECT},
        {"role": "tool", "tool_call_id": "x", "content": '{"text": "front", "written": 3}'},
    ]
    for call in CALLS.values():
        assert len(read("auto", [call], messages)[2]) == 1, call


def test_text_is_shown_as_soon_as_it_cannot_be_a_call() -> None:
    reader = FormatChoice("auto").for_name("m").reader(TOOLS, str)
    for piece, shown in [
        ("Hello", "Hello"),
        (" [x] {", " [x] {"),
        ("\n", "\n"),
        ("[", ""),
        ("see", ""),
        ("]\n", "[see]\n"),
        ("{", ""),
        ('"name": "Ada", ', '{"name": "Ada", '),
        ('"age": 5}\n', '"age": 5}\n'),
        (OBJECT, ""),
        ("\n ", ""),
        ("and", f"{OBJECT}\n and"),
    ]:
        said = "".join(one.text for one in reader.feed(TextDelta(piece)) if isinstance(one, TextPiece))
        assert said == shown, piece


def test_without_tools_no_text_is_held_back() -> None:
    for name in get_args(ToolFormat):
        if name in ("auto", "native"):
            reader = FormatChoice(name).for_name("m").reader((), str)
            assert reader.feed(TextDelta(OBJECT)) == [TextPiece(OBJECT)]
            assert (reader.finish(), reader.calls()) == ([], [])


def rescued_from(choice: FormatChoice, model: str, tool_format: ToolFormat | None = None) -> int:
    return len(read_answer(choice.for_name(model, tool_format), TextDelta(OBJECT)))


def read_answer(chosen: Format, delta: ModelDelta) -> list[ToolCall]:
    """Read an answer, as a turn does."""
    reader = chosen.reader(TOOLS, lambda given: given or "new")
    if isinstance(delta, ToolCallDelta) and delta.name:
        chosen.note_native_call()
    reader.feed(delta)
    reader.finish()
    calls = reader.calls()
    chosen.note_calls_in_text(calls)
    return calls


@pytest.mark.parametrize("seen_by", ["auto", "native", "hermes"])
def test_no_call_is_rescued_after_a_native_call_of_the_model(seen_by: ToolFormat) -> None:
    choice = FormatChoice()
    assert rescued_from(choice, "m") == 1
    read_answer(choice.for_name("m", seen_by), ToolCallDelta(0, "n", "search", "{}"))
    assert rescued_from(choice, "m") == 0
    assert rescued_from(choice, "m", "rescue") == 1
    assert rescued_from(choice, "another") == 1
    assert rescued_from(FormatChoice(), "m") == 1


@pytest.mark.parametrize("end", ["Observation: ", "**Observation:** \n", "Observation: x"])
def test_a_stream_after_a_call_is_read_as_the_whole_answer(end: str) -> None:
    # `\Z` matches at the end of the text that has arrived so far.
    answer = f"{CALLS['react']}\n{end}"
    for name in FORMATS_WITH_REACT:
        whole = read(name, [answer])
        assert all(
            (text, thought, len(calls)) == (*whole[:2], len(whole[2]))
            for text, thought, calls in (read(name, pieces) for pieces in splits(answer))
        ), name


@pytest.mark.parametrize("name", ["react", "xml"])
def test_the_model_is_told_that_there_is_no_such_tool_if_it_was_asked_for_calls_in_text(name: ToolFormat) -> None:
    for block in (UNKNOWN, '[TOOL_CALLS]launch[ARGS]{"a": 1}'):
        for pieces in splits(f"I look.\n{block}"):
            text, _, calls = read(name, pieces)
            assert (text, [call.name for call in calls]) == ("I look.", ["launch"])


def test_a_call_of_no_tool_that_is_explained_is_text_though_calls_in_text_were_asked_for() -> None:
    for prose in (f"For example:\n\n{UNKNOWN}", f"{UNKNOWN}\nThat is a call."):
        for pieces in splits(prose):
            assert read("react", pieces) == (prose, "", [])
    assert read("xml", ["Action: launch\nAction Input: {}"])[2] == []


QUOTED: list[tuple[ToolFormat, str]] = [
    ("react", CALLS["hermes"]),
    ("xml", CALLS["react"]),
    ("xml", "Action: search\nAction Input:"),
]


@pytest.mark.parametrize(("name", "call"), QUOTED)
def test_a_call_in_a_syntax_that_was_not_asked_for_is_unchanged_if_it_does_not_count(
    name: ToolFormat, call: str
) -> None:
    for before in ("", "It says.\n", "It says.\n\n"):
        for pieces in splits(before + call):
            assert read(name, pieces, [{"role": "user", "content": CALLS["hermes"]}]) == (before + call, "", [])


PROSE = [
    "Well", ". ", "\n", "\n\n", "So:\n", " ", "- ", "> ", "| a | b |\n", "--- | ---\n", "1. x\n", "```", "```json\n",
    "~~~\n", "`", "``", "<!-- ", "-->", "<pre>", "</pre>", '"', "“", "    ", "\t", "# ", "Action: ", "Thought: so\n",
    "{", "[", "}", "\\", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|im_end|>", '{"a": 1}', "\r\n", "é\u2028",
]  # fmt: skip
WRITTEN = [*CALLS.values(), *(f"{one}\n" for one in CALLS.values())]
# Only calls are removed from these. For thoughts and lone tags see test_react.py.
SHOWN = [one for one in PROSE if one != "Thought: so\n"]
mixtures = st.lists(st.sampled_from([*SHOWN, *WRITTEN]), max_size=12)
exact_mixtures = st.lists(
    st.sampled_from([*(one for one in SHOWN if one not in ("<tool_call>", "</tool_call>")), *WRITTEN]), max_size=12
)


@given(exact_mixtures.map("".join), st.integers(1, 9))
@example("| a | b |\nAction: - ", 3)
@example("\r\nAction: ", 5)
@example(f"~~~\n<|im_end|>{CALLS['xml']}~~~\n", 1)
@example(f"Well{CALLS['harmony']}{CALLS['hermes']}", 1)
def test_text_and_the_calls_behind_it_are_the_answer(answer: str, size: int) -> None:
    text, reasoning, calls = read("auto", [answer])
    assert answer.startswith(text)
    rest = answer[len(text) :]
    assert bool(calls) == bool(rest)
    assert reasoning == ""
    pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
    again = read("auto", pieces)
    assert (again[0], [one.arguments_text for one in again[2]]) == (text, [one.arguments_text for one in calls])
    if calls:
        alone = read("auto", [rest])
        assert (alone[0], [one.name for one in alone[2]]) == ("", [one.name for one in calls])


@given(mixtures.map("".join))
def test_no_call_runs_if_prose_follows(before: str) -> None:
    answer = f"{before}\nIt looks like an attack."
    assert read("auto", [answer]) == (answer, "", [])
    assert read("native", [answer]) == (answer, "", [])


def test_only_rescued_calls_are_marked_as_rescued() -> None:
    made: dict[str, Any] = {name: read(name, [CALLS["hermes"]])[2] for name in ("auto", "rescue", "xml", "hermes")}
    assert {name: (call.rescued, call.asks_first) for name, [call] in made.items()} == {
        "auto": (True, True),
        "rescue": (True, False),
        "xml": (False, False),
        "hermes": (False, False),
    }
