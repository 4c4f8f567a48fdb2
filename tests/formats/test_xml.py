"""Calls between XML-like tags, closed or not, in upper and lower case."""

import pytest

from callboard._formats import parse
from callboard_formats.formats import list_stops
from tests.formats.test_react import STORMS, TOOLS, calls
from tests.formats.timing import is_linear, seconds

CALL = '{"name": "search", "arguments": {"query": "storms"}}'

SPELLINGS = [
    f"<tool_call>\n{CALL}\n</tool_call>",
    f"<TOOL_CALL>{CALL}</TOOL_CALL>",
    f"<Tool_Call>{CALL}",
    f"<function_call>{CALL}</function_call>",
    f"<function_call>\n```json\n{CALL}\n```\n</function_call>",
    f"<tool_calls>[{CALL}]</tool_calls>",
    f"```xml\n<tool_call>{CALL}</tool_call>\n```",
    '<tool_call name="search">{"query": "storms"}</tool_call>',
    "<function=search>\n<parameter=query>\nstorms\n</parameter>\n</function>",
    "<FUNCTION=search><PARAMETER=query>storms</PARAMETER></FUNCTION>",
    "<tool_call>\n<function=search>\n<parameter=query>\nstorms\n</parameter>\n</function>\n</tool_call>",
    '<function=search>{"query": "storms"}</function>',
    '<function name="search"><parameter name="query">storms</parameter></function>',
    '<function_calls>\n<invoke name="search">\n<parameter name="query">storms</parameter></invoke></function_calls>',
    '<invoke name="search"><parameter name="query">storms</parameter></invoke>',
    f"<tool_call>{CALL}</tool_call>\n<tool_response>sunny</tool_response>\nIt is sunny. <tool_call>{CALL}</tool_call>",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_spelling_of_a_call_is_that_call_and_no_tag_is_shown(text: str) -> None:
    for before in ("", "I will look.\n"):
        parsed = parse(before + text, TOOLS, "xml")
        assert calls(parsed) == STORMS
        assert parsed.content == before.strip()


def test_text_between_calls_is_kept_and_text_after_the_last_is_dropped() -> None:
    parsed = parse(f"One.\n<tool_call>{CALL}</tool_call>\nTwo.\n<tool_call>{CALL}</tool_call>\nDone!", TOOLS, "xml")
    assert calls(parsed) == STORMS * 2
    assert parsed.content == "One.\n\nTwo."


@pytest.mark.parametrize(
    ("text", "name", "error"),
    [
        ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', "fly", "There is no tool 'fly'"),
        ('<tool_call>{"name": "search", "arguments": {"query": "sto', "search", "cut off"),
        ("<function=search><parameter=query>sto", "search", "cut off"),
        ('<tool_call>{"arguments": {"query": "x"}}</tool_call>', "", "names no tool"),
        ("<tool_call>[1]</tool_call>", "", "names no tool"),
    ],
)
def test_an_unreadable_call_is_an_error_and_not_text(text: str, name: str, error: str) -> None:
    parsed = parse(text, TOOLS, "xml")
    [call] = parsed.tool_calls
    assert (call.name, call.arguments, parsed.content) == (name, None, "")
    assert error in (call.error or "")


@pytest.mark.parametrize(
    "text",
    ["The tag `<tool_call>` begins a call.", "Write <function of x> and <b>bold</b>.", "```html\n<b>?</b>\n```"],
)
def test_mentioned_tags_are_text(text: str) -> None:
    assert parse(text, TOOLS, "xml").content == text


def test_reasoning_is_separated_and_calls_in_it_do_not_count() -> None:
    parsed = parse(f"<think>Maybe <tool_call>{CALL}</tool_call>?</think>\n\nNo.", TOOLS, "xml")
    assert (parsed.content, parsed.reasoning, parsed.tool_calls) == (
        "No.",
        f"Maybe <tool_call>{CALL}</tool_call>?",
        (),
    )


def test_at_most_four_stop_sequences() -> None:
    assert len(list_stops("xml")) <= 4
    assert all("}" not in stop for stop in list_stops("xml"))


@pytest.mark.parametrize("head", ["<function=a><parameter=", "<invoke name=a><parameter name="])
def test_blanks_in_a_tag_are_read_in_linear_time(head: str) -> None:
    assert is_linear(lambda size: seconds(head + " " * size, "xml"))


@pytest.mark.parametrize(
    "unit", ['```xml\n<tool_call>{"q": "\n```\n', "```xml\n<tool_call>search of\n```\n", f"```\n{SPELLINGS[0]}\n"]
)
def test_fences_of_calls_that_words_follow_are_read_in_linear_time(unit: str) -> None:
    assert is_linear(lambda size: seconds(unit * (size // len(unit)) + "and so on", "xml"))
