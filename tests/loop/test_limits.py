"""How far a turn may go, and that its user always gets an answer."""

import json

import pytest

from callboard._agents.tool_loop import MAX_CALLS_PER_ANSWER
from callboard.calls import MAX_NAME_CHARS, Allowance, tool
from callboard.models import TextDelta
from callboard_protocol import Done, Event, Status, ToolCallArgsDelta, ToolCallComplete, ToolCallError, ToolCallStart
from tests.loop.conftest import Answer, Stage, results_sent, says, text_of, wants


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def errors(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.code, event.error) for event in events if isinstance(event, ToolCallError)]


ONE: Answer = [wants("add", {"a": 1, "b": 1})]


async def test_exactly_the_allowed_calls_and_then_an_answer_is_an_ordinary_end() -> None:
    stage = Stage([ONE, ONE, says("2")], [add], max_tool_calls=2)
    events = await stage.play()
    assert errors(events) == []
    assert events[-1] == Done(finish_reason="stop")


async def test_a_model_that_asks_for_more_is_refused_and_asked_once_more_without_tools() -> None:
    stage = Stage([ONE, ONE, ONE, says("That is what I found.")], [add], max_tool_calls=2)
    events = await stage.play()
    assert [code for code, _ in errors(events)] == ["limit"]
    assert [bool(request.tools) for request in stage.requests] == [True, True, True, False]
    assert text_of(events) == "That is what I found."
    assert events[-1] == Done(finish_reason="max_turns")


async def test_calls_over_the_cap_within_one_answer_get_an_error_each_and_the_rest_run() -> None:
    calls = [wants("add", {"a": 0, "b": n}, index=n, call_id=f"c{n}") for n in range(5)]
    stage = Stage([calls, says("Some of it.")], [add], max_tool_calls=3)
    events = await stage.play()
    assert [code for code, _ in errors(events)] == ["limit", "limit"]
    assert results_sent(stage)[:3] == ["0", "1", "2"]
    assert [result.startswith("Error: ") for result in results_sent(stage)] == [False, False, False, True, True]
    assert not stage.requests[-1].tools
    assert events[-1] == Done(finish_reason="max_turns")


async def test_of_thousands_of_calls_in_one_answer_the_first_are_looked_at_and_the_user_is_told() -> None:
    calls = [wants("add", {"a": 0, "b": n}, index=n, call_id=f"c{n}") for n in range(3000)]
    stage = Stage([calls, says("Some of it.")], [add], max_tool_calls=3)
    events = await stage.play()
    assert sum(isinstance(event, ToolCallStart) for event in events) == MAX_CALLS_PER_ANSWER
    announced = {event.tool_call_id for event in stage.events if isinstance(event, ToolCallArgsDelta)}
    assert len(announced) == MAX_CALLS_PER_ANSWER
    assert len(results_sent(stage)) == MAX_CALLS_PER_ANSWER
    [told] = [event.content for event in events if isinstance(event, Status)]
    assert told == f"The model asked for 3000 calls at once; {3000 - MAX_CALLS_PER_ANSWER} were left out"
    assert events[-1] == Done(finish_reason="max_turns")


async def test_an_agent_that_may_call_more_at_once_does() -> None:
    calls = [wants("add", {"a": 0, "b": n}, index=n, call_id=f"c{n}") for n in range(200)]
    stage = Stage([calls, says("All of it.")], [add], max_tool_calls=200)
    events = await stage.play()
    assert errors(events) == []
    assert len(results_sent(stage)) == 200


async def test_a_name_without_end_is_cut_before_it_is_stored_shown_or_told() -> None:
    stage = Stage([[wants("x" * 1_000_000)], says("No.")], [add])
    events = await stage.play()
    [start] = [event for event in events if isinstance(event, ToolCallStart)]
    assert start.tool_name == "x" * MAX_NAME_CHARS
    assert len(json.dumps(list(stage.requests[-1].messages))) < 10 * MAX_NAME_CHARS


@pytest.mark.parametrize("last", [[], ONE, [TextDelta(" \n")]])
async def test_the_user_gets_an_answer_even_where_the_model_gives_none_at_the_limit(last: Answer) -> None:
    stage = Stage([ONE, ONE, last], [add], max_tool_calls=1)
    events = await stage.play()
    assert "used up the tool calls" in text_of(events)
    assert sum(isinstance(event, ToolCallStart) for event in events) == 2
    assert events[-1] == Done(finish_reason="max_turns")


async def test_a_model_that_never_gets_a_call_right_comes_to_an_end() -> None:
    wrong: Answer = [wants("nothing")]
    stage = Stage([wrong, wrong, wrong, wrong, says("I give up.")], [add], max_tool_calls=3)
    events = await stage.play()
    assert [code for code, _ in errors(events)] == ["unknown_tool"] * 3 + ["limit"]
    assert events[-1] == Done(finish_reason="max_turns")


async def test_calls_that_could_not_be_run_take_nothing_from_those_that_can() -> None:
    wrong: Answer = [wants("nothing")]
    stage = Stage([wrong, ONE, wrong, ONE, says("Done.")], [add], max_tool_calls=2)
    events = await stage.play()
    assert sum(isinstance(event, ToolCallComplete) for event in events) == 2
    assert events[-1] == Done(finish_reason="stop")


@pytest.mark.parametrize(("text", "shown"), [("Half an ans", "Half an ans"), ("", "cut off")])
async def test_an_answer_cut_at_the_token_limit_ends_with_length(text: str, shown: str) -> None:
    events = await Stage([says(text, "length")]).play()
    assert shown in text_of(events)
    assert events[-1] == Done(finish_reason="length")


async def test_a_call_that_lost_its_arguments_at_the_token_limit_is_not_run() -> None:
    ran = []

    @tool
    async def wipe() -> None:
        """Wipes everything."""
        ran.append(1)

    stage = Stage([[wants("wipe", ""), *says("", "length")], says("Sorry.")], [wipe])
    [(code, shown)] = errors(await stage.play())
    assert (code, "cut off" in shown, ran) == ("invalid_args", True, [])


def sums(*numbers: int) -> list[Answer]:
    return [[wants("add", {"a": 0, "b": number})] for number in numbers]


async def test_a_skills_own_limit_refuses_its_calls_and_the_turn_goes_on_with_others() -> None:
    @tool
    async def light(state: str) -> str:
        """Switches a light."""
        return state

    lights: list[Answer] = [[wants("light", {"state": state})] for state in ("on", "off", "dim")]
    stage = Stage(
        [*lights, *sums(1), says("Two of three.")],
        [add, light],
        allowances=[Allowance("home", frozenset({"light"}), 2)],
    )
    events = await stage.play()
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["on", "off", "1"]
    [(code, shown)] = errors(events)
    assert (code, "'home'" in shown) == ("limit", True)
    assert stage.requests[-1].tools
    assert events[-1] == Done(finish_reason="stop")


async def test_the_same_call_for_the_third_time_in_a_row_is_told_that_it_has_its_result() -> None:
    stage = Stage([*sums(1, 1, 1, 2, 1), says("1 and 2.")], [add])
    events = await stage.play()
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["1", "1", "2", "1"]
    [(code, shown)] = errors(events)
    assert code == "limit"
    assert "already called" in shown
    assert "result above" in shown
    assert events[-1] == Done(finish_reason="stop")


async def test_the_same_call_in_other_words_is_the_same_call() -> None:
    same: list[Answer] = [
        [wants("add", text)] for text in ('{"a": 0, "b": 1}', '{"b": "1", "a": 0}', "{'a': 0, 'b': 1}")
    ]
    events = await Stage([*same, says("1")], [add]).play()
    assert [code for code, _ in errors(events)] == ["limit"]


async def test_a_model_that_repeats_itself_for_ever_comes_to_an_end() -> None:
    stage = Stage([*sums(*[1] * 8), says("I give up.")], [add], max_tool_calls=5)
    events = await stage.play()
    assert text_of(events) == "I give up."
    assert events[-1] == Done(finish_reason="max_turns")
