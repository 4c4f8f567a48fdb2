"""ReAct: calls in its spellings, and its labels in answers that were not asked for in it."""

from itertools import pairwise

import pytest

from callboard._formats import FormatChoice, Parsed, Reader, ReasoningPiece, TextPiece, ToolFormat, parse
from callboard.calls import tool
from callboard.models import ChatDict, Finish, TextDelta

TEXT = {"type": "string"}


def schema(name: str, *required: str, **properties: object) -> dict[str, object]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


TOOLS = [
    schema("search", "query", query=TEXT, limit={"type": "integer"}),
    schema("get_weather", "city", city=TEXT),
    schema("now"),
]


@pytest.mark.parametrize("text", ["Thought: Hm.\nAction: now\nAction Inp", "Action: now\nAction", "Action: now\n**Act"])
def test_an_action_whose_next_label_is_cut_off_does_not_run(text: str) -> None:
    for format_name in ("react", "rescue"):
        parsed = parse(text, TOOLS, format_name)
        assert (parsed.content, [call.error_code for call in parsed.tool_calls]) == ("", ["invalid_args"])


def calls(parsed: Parsed) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in parsed.tool_calls]


def react(text: str) -> Parsed:
    return parse(text, TOOLS, "react")


ACTION = 'Action: search\nAction Input: {"query": "storms"}'
FENCED = '```json\n{"name": "search", "arguments": {"query": "storms"}}\n```'


@pytest.mark.parametrize("name", ["react", "rescue"])
def test_an_empty_input_at_the_end_is_complete_only_if_the_tool_has_no_arguments(name: str) -> None:
    optional = [*TOOLS, schema("list_files", folder=TEXT)]
    [now], [cut] = (
        parse(f"Action: {tool_name}\nAction Input:", optional, name).tool_calls for tool_name in ("now", "list_files")
    )
    assert (now.arguments, cut.error_code) == ({}, "invalid_args")


EXPLAINED = [
    ("rescue", f"{FENCED}\nT"),
    ("hermes", '<tools>\n{"name": "search", "parameters": {"query": "storms"}}\n'),
    ("xml", 'The form is:\n\n```xml\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'),
]


@pytest.mark.parametrize(("format_name", "text"), EXPLAINED)
def test_no_explained_call_runs_if_the_explanation_is_broken_off(format_name: str, text: str) -> None:
    assert [call for call in parse(text, TOOLS, format_name).tool_calls if call.error is None] == []


@pytest.mark.parametrize("format_name", ["react", "rescue"])
@pytest.mark.parametrize(
    "text",
    [
        f"In ReAct a model writes\n\n{ACTION}\n\nand waits for an Observation.",
        "One writes:\n\nAction: search[storms]\n\nas in the paper.",
        f"{FENCED}\nReplace the query with yours.",
        f"A step is:\n```\n{ACTION}\n```\nThe model stops there.",
    ],
)
def test_an_action_inside_a_sentence_is_text(text: str, format_name: str) -> None:
    parsed = parse(text, TOOLS, format_name)
    assert (parsed.content, parsed.tool_calls) == (text, ())


@pytest.mark.parametrize("behind", ["\n\nI will wait.", " is a call."])
def test_an_action_with_words_behind_it_is_text_if_react_was_not_asked_for(behind: str) -> None:
    for before in ("", "I will look.\n"):
        text = before + ACTION + behind
        parsed = parse(text, TOOLS, "rescue")
        assert (parsed.content, parsed.tool_calls) == (text, ())


def test_an_action_is_refused_if_the_sentence_continues_behind_it() -> None:
    [call] = react(f"Thought: A model writes\n{ACTION}\n\nand waits for an Observation.").tool_calls
    assert call.error_code == "invalid_args"


@pytest.mark.parametrize("words", ["ls | grep 'a: b' > x", "- one\n- two", "# a\nb: c", "x = {1: [2]}"])
@pytest.mark.parametrize("label", ["{}：", "**{}:** ", "**{}**:\n", "`{}:` ", "### {}: ", "- {} 2: "])
def test_bare_input_is_unchanged_behind_every_spelling_of_the_labels(label: str, words: str) -> None:
    before = f"{label.format('Action')}search\n{label.format('Action Input')}"
    for end in ("", "\n", f"\n{label.format('Observation')}none", f"\n\n{label.format('Thought')}Hm.", "<|im_end|>"):
        assert calls(react(before + words + end)) == [("search", {"query": words})]
        fenced = f"{before}\n```\n{words}\n```{end}"
        assert calls(react(fenced)) == [("search", {"query": words})]


# --------------------------------------------------------------------- its labels in answers to native requests


ASKED: list[ChatDict] = [
    {"role": "user", "content": "How warm is it?"},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "tool_call_id": "c", "content": '{"temperature":  "21 degrees,\nsunny"}'},
]


@tool
async def weather(place: str) -> str:
    """Says the weather."""
    return place


def read(
    text: str, cuts: tuple[int, ...] = (), messages: list[ChatDict] = ASKED, name: ToolFormat = "auto"
) -> tuple[str, str]:
    """Return the text and the reasoning of an answer that arrives in pieces."""
    reader: Reader = FormatChoice(name).for_name("m").reader([weather], str, messages)
    pieces = []
    for start, end in pairwise(sorted({0, len(text), *cuts})):
        pieces += reader.feed(TextDelta(text[start:end]))
    pieces += reader.feed(Finish("stop"))
    pieces += reader.finish()
    assert not reader.calls()
    return (
        "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)),
        "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece)),
    )


def cuts_of(text: str) -> list[tuple[int, ...]]:
    """Return the places of cuts: none, at every third place alone, and at every place at once."""
    return [(), *((place,) for place in range(1, len(text), 3)), tuple(range(1, len(text)))]


SCAFFOLDING = [
    ("**Final Answer:** 42", "42", ""),
    ("\nFinal Answer:\n\n42 is it.\n\nFinal Answer: is a label.", "42 is it.\n\nFinal Answer: is a label.", ""),
    ("Thought: I know it now.\nFinal Answer: 42", "42", "I know it now."),
    ("Thought: None needed.\nAction: None\nAction Input: None\nFinal Answer: 42", "42", "None needed."),
    ("Observation: 21 degrees\nThought: So it is warm.\nFinal Answer: Warm.", "Warm.", "So it is warm."),
    ("It is warm.\nAction: N/A\nAction Input: {}\n", "It is warm.\n", ""),
    ("It is warm.\nObservation:", "It is warm.\n", ""),
    ("It is warm.\n\n<tool_call>", "It is warm.\n\n", ""),
    ("It is warm.\n</tool_call>", "It is warm.\n", ""),
    ("It is warm.\n</function>\n</tool_call>\n", "It is warm.\n", ""),
    ("Thought: It is warm.\n\nVery.", "It is warm.\n\nVery.", ""),
]


@pytest.mark.parametrize(("text", "shown", "reasoning"), SCAFFOLDING)
def test_a_transcript_is_shown_without_its_labels(text: str, shown: str, reasoning: str) -> None:
    for cuts in cuts_of(text):
        assert read(text, cuts) == (shown, reasoning), cuts


@pytest.mark.parametrize("name", ["rescue", "hermes", "xml"])
def test_the_labels_are_removed_with_every_format_that_reads_text(name: ToolFormat) -> None:
    for text, shown in (("Final Answer: 42", "42"), ("It is warm.\nObservation:", "It is warm.\n")):
        for cuts in cuts_of(text):
            assert read(text, cuts, name=name) == (shown, ""), cuts


WORDS = [
    "The result is 42.\n\n**Final Answer:** 42",
    "```\nThought: hm\nAction: None\nFinal Answer: 42\n```",
    "It ends so:\n```\nIt is warm.\n\nAction: None",
    "Severity: low\nAction: None",
    "- Owner: nobody\n- Due: never\n\nAction: none",
    "Observation: 22 degrees",
    "It is warm.\nAction: None of the above fits.",
    "Action: weather\nNothing else.",
    "Actionable: None",
    "It is warm.\nAction",
    "It is warm.\nAction: -",
    "| a | b |\nAction: - ",
    "- warm\nAction: none",
    "Thought: so\nAction: - ",
    "The tag is:\n\n<tool_call>",
    "It is warm.\n<tool_call> is a tag.",
    "It is warm.\nObservation: none was made.",
    "It is warm.\nThought: why so?\n\nNobody knows.",
    "```\nThought: so\n<tool_call>",
    "<tool_call>\n{}\n</tool_call>",
    "It is so:\n<function=f>\n</function>\n</tool_call>",
    "It is warm. </tool_call>",
]


@pytest.mark.parametrize("text", WORDS)
def test_labels_in_other_answers_stay_text(text: str) -> None:
    for cuts in cuts_of(text):
        assert read(text, cuts) == (text, ""), cuts


@pytest.mark.parametrize("told", ["End with 'Final Answer: X'.", "Explain ReAct."])
@pytest.mark.parametrize("text", ["Final Answer: 42", "It is warm.\n\nAction: None"])
def test_labels_from_the_messages_stay_text(told: str, text: str) -> None:
    assert read(text, messages=[{"role": "user", "content": told}]) == (text, "")


def test_a_lone_tag_that_the_messages_mention_stays_text() -> None:
    assert read("<tool_call>", messages=[{"role": "user", "content": "Which tag opens a tool call?"}]) == (
        "<tool_call>",
        "",
    )


def test_a_thought_without_an_end_is_shown() -> None:
    text = "Thought: " + "and so on " * 10_000
    assert read(text) == (text, "")
