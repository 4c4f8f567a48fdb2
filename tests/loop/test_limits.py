"""How far a turn may go, and that its user always gets an answer."""

import json

import pytest

from callboard.agents.tool_loop import MAX_CALLS_PER_ANSWER
from callboard.calls import tool
from callboard.calls.call import MAX_NAME_CHARS
from callboard.calls.limits import Allowance
from callboard.models import TextDelta
from callboard_protocol import Done, Status, ToolCallArgsDelta, ToolCallComplete, ToolCallStart
from tests.loop.conftest import Answer, Stage, add, errors, results_sent, says, text_of, wants

ONE: Answer = [wants("add", {"a": 1, "b": 1})]


async def test_calls_over_the_limit_in_one_answer_get_errors_and_the_others_run() -> None:
    calls = [wants("add", {"a": 0, "b": n}, index=n, call_id=f"c{n}") for n in range(5)]
    stage = Stage([calls, says("Some of it.")], [add], max_tool_calls=3)
    events = await stage.play()
    assert [code for code, _ in errors(events)] == ["limit", "limit"]
    assert results_sent(stage)[:3] == ["0", "1", "2"]
    assert [result.startswith("Error: ") for result in results_sent(stage)] == [False, False, False, True, True]
    assert not stage.requests[-1].tools
    assert events[-1] == Done(finish_reason="max_turns")


async def test_thousands_of_calls_in_one_answer_are_cut_and_a_status_says_so() -> None:
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


async def test_very_long_tool_name_is_cut_everywhere() -> None:
    stage = Stage([[wants("x" * 1_000_000)], says("No.")], [add])
    events = await stage.play()
    [start] = [event for event in events if isinstance(event, ToolCallStart)]
    assert start.tool_name == "x" * MAX_NAME_CHARS
    assert len(json.dumps(list(stage.requests[-1].messages))) < 10 * MAX_NAME_CHARS


@pytest.mark.parametrize("last", [[], [TextDelta(" \n")]])
async def test_user_gets_a_text_if_the_model_gives_none_at_the_limit(last: Answer) -> None:
    stage = Stage([ONE, ONE, last], [add], max_tool_calls=1)
    events = await stage.play()
    assert "used up the tool calls" in text_of(events)
    assert sum(isinstance(event, ToolCallStart) for event in events) == 2
    assert events[-1] == Done(finish_reason="max_turns")


async def test_turn_of_a_model_that_makes_only_invalid_calls_ends() -> None:
    wrong: Answer = [wants("nothing")]
    stage = Stage([wrong, wrong, wrong, wrong, says("I give up.")], [add], max_tool_calls=3)
    events = await stage.play()
    assert [code for code, _ in errors(events)] == ["unknown_tool"] * 3 + ["limit"]
    assert events[-1] == Done(finish_reason="max_turns")


@pytest.mark.parametrize(("text", "shown"), [("Half an ans", "Half an ans"), ("", "reached its token limit")])
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


async def test_limit_of_a_skill_refuses_its_calls_and_other_tools_still_run() -> None:
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


async def test_third_identical_call_in_a_row_is_refused() -> None:
    stage = Stage([*sums(1, 1, 1, 2, 1), says("1 and 2.")], [add])
    events = await stage.play()
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["1", "1", "2", "1"]
    [(code, shown)] = errors(events)
    assert code == "limit"
    assert "already called" in shown
    assert "result above" in shown
    assert events[-1] == Done(finish_reason="stop")


async def test_identical_call_written_differently_is_identical() -> None:
    same: list[Answer] = [
        [wants("add", text)] for text in ('{"a": 0, "b": 1}', '{"b": "1", "a": 0}', "{'a': 0, 'b': 1}")
    ]
    events = await Stage([*same, says("1")], [add]).play()
    assert [code for code, _ in errors(events)] == ["limit"]
