"""ReAct in the spellings that models use."""

from functools import partial

import pytest

from callboard._formats import Parsed, parse
from callboard_formats.formats import list_stops
from tests.formats.timing import is_linear, seconds_of_row

TEXT = {"type": "string"}


def schema(name: str, *required: str, **properties: object) -> dict[str, object]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


TOOLS = [
    schema("search", "query", query=TEXT, limit={"type": "integer"}),
    schema("get_weather", "city", city=TEXT),
    schema("now"),
]
STORMS = [("search", {"query": "storms"})]


def calls(parsed: Parsed) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in parsed.tool_calls]


def react(text: str) -> Parsed:
    return parse(text, TOOLS, "react")


SPELLINGS = [
    'Action: search\nAction Input: {"query": "storms"}',
    'Action: search\n\nAction Input:\n{"query": "storms"}',
    '**Action:** search\n**Action Input:** {"query": "storms"}',
    '**Action**: `search`\n**Action Input**: `{"query": "storms"}`',
    '`Action:` search\n`Action Input:` {"query": "storms"}',
    '### Action: search\n### Action Input: {"query": "storms"}',
    '# Tool: search\n{"query": "storms"}',
    'Tool: search\nTool Input: {"query": "storms"}',
    'Tool: search\nInput: {"query": "storms"}',
    'Function: search\nArguments: {"query": "storms"}',
    'ACTION: Search\nACTION INPUT: {"query": "storms"}',
    'Action: [search]\nAction Input: {"query": "storms"}',
    'Thought: Look it up. Action: search Action Input: {"query": "storms"}',
    'Action: search, Action Input: {"query": "storms"}',
    'Action: search({"query": "storms"})',
    'Action: search(query="storms")',
    'Action: `search({"query": "storms"})`',
    "Action: search[storms]",
    'Action: search {"query": "storms"}',
    "Action: search\nAction Input: storms",
    'Action: search\nAction Input: "storms"',
    'Action: search\nAction Input: ```json\n{"query": "storms"}\n```',
    'Action:\n```json\n{"action": "search", "action_input": {"query": "storms"}}\n```',
    'Action: {"name": "search", "arguments": {"query": "storms"}}',
    '```json\n{"name": "search", "arguments": {"query": "storms"}}\n```',
    '```\n{"tool": "search", "parameters": {"query": "storms"}}\n```',
    '```\nAction: search\nAction Input: {"query": "storms"}\n```',
    "Action: search\nAction Input: {'query': 'storms'}",
    'Action: google_search\nAction Input: {"query": "storms"}',
    'Action: search\nAction Input: {"query": "storms"}\nObservation: sunny\nAction: now\nFinal Answer: sun',
    'Action: search\nAction Input: {"query": "storms"}\n**Observation:** sunny',
    'Action: search\nAction Input: {"query": "storms"} Observation: sunny Final Answer: sun',
    'Action: search\nAction Input: {"query": "storms"}\n\nI will wait for the result.',
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_spelling_of_a_call_is_that_call_and_none_of_it_is_shown(text: str) -> None:
    for before in ("", "Thought: Hm.\n", "I will look.\n"):
        parsed = react(before + text)
        assert calls(parsed) == STORMS
        assert parsed.content == ("I will look." if before.startswith("I") else "")
        assert "Action" not in parsed.reasoning


def test_several_calls_in_one_answer_are_all_taken() -> None:
    parsed = react(
        'Thought: Both.\nAction: search\nAction Input: {"query": "storms"}\n\n'
        'Thought: And.\nAction: get_weather\nAction Input: {"city": "Lisbon"}\nAction: now\n'
    )
    assert calls(parsed) == [*STORMS, ("get_weather", {"city": "Lisbon"}), ("now", {})]
    assert parsed.reasoning == "Both.And."


@pytest.mark.parametrize(
    ("text", "content", "reasoning"),
    [
        ("Thought: I know.\nFinal Answer: It is 42.", "It is 42.", "I know."),
        ("Thought: I know. Final Answer: It is 42.", "It is 42.", "I know."),
        ("**Thought:** I know.\n\n**Final Answer:** It is 42.\n", "It is 42.\n", "I know."),
        ("Final Answer: **Yes**\n\n- Action: movies", "**Yes**\n\n- Action: movies", ""),
        ("Thought: No tool.\nAction: None\nAction Input: None\nFinal Answer: 42", "42", "No tool."),
        ("It is 42.", "It is 42.", ""),
    ],
)
def test_thoughts_are_reasoning_and_the_final_answer_is_the_answer(text: str, content: str, reasoning: str) -> None:
    parsed = react(text)
    assert (parsed.content, parsed.reasoning, parsed.tool_calls) == (content, reasoning, ())


def test_a_thought_without_an_answer_becomes_the_answer() -> None:
    assert react("Thought: It is 42.").content == "It is 42."


@pytest.mark.parametrize(
    "text",
    [
        "Action: movies are great",
        "Action: search the web for storms, then tell me",
        "My favourite Action: search. It is a good one.",
        "Tool: a hammer\nFunction: hitting",
        "## Action movies\n\n1. Heat\n2. Ronin",
        "The tool: search (as we call it) is fine",
        '```json\n{"name": "Ada", "arguments": {"city": "London"}}\n```',
        '```python\nprint("Action: search")\n```',
        'He said "Action: search" and left.',
    ],
)
def test_prose_is_unchanged(text: str) -> None:
    parsed = react(text)
    assert (parsed.content, parsed.tool_calls) == (text, ())


ACTION = 'Action: search\nAction Input: {"query": "storms"}'
FENCED = '```json\n{"name": "search", "arguments": {"query": "storms"}}\n```'


@pytest.mark.parametrize("format_name", ["react", "rescue"])
@pytest.mark.parametrize(
    "text",
    [
        f"In ReAct a model writes\n\n{ACTION}\n\nand waits for an Observation.",
        f"A step looks like this:\n\n{ACTION}\n\nThen the tool runs.",
        f"## A step\n\n{ACTION.replace('search', '`search`')}\n\nThe model stops there.",
        "One writes:\n\nAction: search[storms]\n\nas in the paper.",
        "One writes:\n\nAction: search(query='storms')\n\nas Python does.",
        f"{FENCED}\nReplace the query with yours.",
        f"{FENCED}\n\n{FENCED}\n\nBoth search for storms.",
        f"A step is:\n```\n{ACTION}\n```\nThe model stops there.",
    ],
)
def test_an_action_inside_a_sentence_is_text(text: str, format_name: str) -> None:
    parsed = parse(text, TOOLS, format_name)
    assert (parsed.content, parsed.tool_calls) == (text, ())


@pytest.mark.parametrize("behind", ["\n\nI will wait.", "\nand waits.", " is a call.", "\n\n## Result"])
def test_an_action_with_words_behind_it_is_text_if_react_was_not_asked_for(behind: str) -> None:
    for before in ("", "I will look.\n"):
        text = before + ACTION + behind
        parsed = parse(text, TOOLS, "rescue")
        assert (parsed.content, parsed.tool_calls) == (text, ())


@pytest.mark.parametrize("format_name", ["react", "rescue"])
def test_a_whole_step_inside_a_sentence_is_no_call(format_name: str) -> None:
    text = f"In ReAct a model writes\n\nThought: I look.\n{ACTION}\n\nand waits for an Observation."
    assert parse(text, TOOLS, format_name).tool_calls == ()


def test_an_action_is_refused_if_the_sentence_continues_behind_it() -> None:
    [call] = react(f"Thought: A model writes\n{ACTION}\n\nand waits for an Observation.").tool_calls
    assert call.error_code == "invalid_args"


@pytest.mark.parametrize(
    ("text", "name", "error"),
    [
        ('Action: fly_to\nAction Input: {"moon": 1}', "fly_to", "There is no tool 'fly_to'. The tools are"),
        ('Action: get_wether\nAction Input: {"city": "L"}', "get_wether", "Did you mean 'get_weather'?"),
        ('Action: search\nAction Input: {"query": "sto', "search", "cut off"),
        ("Action: search\nAction Input: [1, 2]", "search", "must be one JSON object, not a list"),
        ("Action: search\n", "search", "argument 'query' is missing"),
        ("Action: search", "search", "cut off"),
        ('Action: search\nAction Input: {"limit": 1}', "search", "argument 'query' is missing"),
    ],
)
def test_an_unreadable_call_is_an_error_and_not_text(text: str, name: str, error: str) -> None:
    parsed = react(text)
    [call] = parsed.tool_calls
    assert (call.name, call.arguments, parsed.content) == (name, None, "")
    assert error in (call.error or "")


def test_an_example_in_a_fence_is_no_call_if_react_was_not_asked_for() -> None:
    example = '```json\n{"name": "search", "arguments": {"query": "storms"}}\n```'
    assert calls(parse(f"Here is one:\n{example}\nIt searches.", TOOLS, "rescue")) == []
    assert (
        parse(f"Here is one:\n{example}\nIt searches.", TOOLS, "rescue").content
        == f"Here is one:\n{example}\nIt searches."
    )
    assert calls(parse(f"I will search.\n{example}", TOOLS, "rescue")) == STORMS


def test_at_most_four_stop_sequences_and_none_can_cut_an_input_off() -> None:
    assert len(list_stops("react")) <= 4
    assert all("}" not in stop and stop.startswith("\n") for stop in list_stops("react"))


@pytest.mark.parametrize("words", ["ls | grep 'a: b' > x", "- one\n- two", "cd x\nls", "# a\nb: c", "x = {1: [2]}"])
@pytest.mark.parametrize(
    "label", ["{}: ", "{}：", "**{}:** ", "**{}**:\n", "`{}:` ", "### {}: ", "- {}:\n", "- {} 2: "]
)
def test_bare_input_is_unchanged_behind_every_spelling_of_the_labels(label: str, words: str) -> None:
    before = f"{label.format('Action')}search\n{label.format('Action Input')}"
    for end in ("", "\n", f"\n{label.format('Observation')}none", f"\n\n{label.format('Thought')}Hm.", "<|im_end|>"):
        assert calls(react(before + words + end)) == [("search", {"query": words})]
        fenced = f"{before}\n```\n{words}\n```{end}"
        assert calls(react(fenced)) == [("search", {"query": words})]


HOSTILE = {
    "unclosed fences": "Thought: ```\nThought: ",
    "fences of actions": "```\nAction: search\n",
    "actions amid words": "x Action: search {} y ",
    "brackets": "Action: search[ ]x ",
    "lines that are no labels": "Action: search\nAction Input: a\naction: b\n",
    "end tokens": "Action Input: </s> ",
    "fences in a fence": "Action: search\nAction Input:\n```\n```\n",
}


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_grows_with_the_length_of_a_hostile_answer_and_no_faster(unit: str) -> None:
    assert is_linear(partial(seconds_of_row, HOSTILE[unit], "react"))
