"""After a server was killed, another one continues its runs to their ends, and no tool runs a second time."""

import asyncio
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from callboard.runs.left_runs import NOT_STARTED, STOPPED_DURING_ANSWER
from callboard.storage import INTERRUPTED_CALL, GivenAnswer
from callboard.storage.sql.tables import runs
from callboard_protocol import (
    CallEvent,
    Done,
    Error,
    InputRequest,
    Message,
    Rewind,
    RunStart,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
)
from tests.fakes.openai_server import Answer, OpenAIServer, call, chunks, finish, text
from tests.processes import run
from tests.runs.killing import Killing, told
from tests.runs.promises import check
from tests.storage.conftest import new_database

pytestmark = pytest.mark.timeout(120)

AGENT = str(Path(__file__).with_name("careful_agent.py"))
SOLD = chunks(text("I sell it. "), call("sell", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
ANSWER = chunks(text("Seat 7 is yours."), finish("stop"))


def answers(*script: Answer) -> Sequence[Answer]:
    return script


async def test_after_a_kill_in_the_middle_of_a_text_the_next_server_completes_the_text(tmp_path: Path) -> None:
    script = answers(SOLD, chunks(text("Seat 7 is"), ending="hang"), ANSWER)
    async with OpenAIServer(script) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, Message) and "Seat 7" in event.content)
        messages = await play.go_on()
    check(play.seen)
    *_, taken_back, said, last = play.events
    assert isinstance(taken_back, Rewind)
    assert isinstance(said, Message)
    assert said.content == "Seat 7 is yours."
    assert last == Done()
    assert play.ran == ["sell 7"]
    # The same was told to the model both times.
    assert told(model.requests[2]) == told(model.requests[1])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[-1]["content"] == "Seat 7 is yours."


async def test_a_server_counts_the_runs_that_it_takes_over_and_how_they_end(tmp_path: Path) -> None:
    async with OpenAIServer([chunks(text("Seat 7 is"), ending="hang"), ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, Message))
        await play.go_on()
    assert play.scraped.sum("callboard_runs_taken_over_total", agent="careful") == 1
    assert play.scraped.sum("callboard_runs_total", agent="careful", ending="stop") == 1
    assert play.scraped.sum("callboard_run_seconds_count", agent="careful") == 1


async def test_half_written_arguments_are_taken_back(tmp_path: Path) -> None:
    half = chunks(call("sell", '{"seat"', call_id="c1"), ending="hang")
    async with OpenAIServer([half, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, ToolCallArgsDelta))
        await play.go_on()
    check(play.seen)
    assert [event.type for event in play.events] == ["run_start", "tool_call_args_delta", "rewind", "message", "done"]


async def test_text_that_was_written_while_a_call_was_open_is_taken_back_before_the_call_ends(tmp_path: Path) -> None:
    async with OpenAIServer([]) as model:
        play = Killing(tmp_path, model, str(Path(__file__).with_name("talking_agent.py")))
        await play.run_until(lambda event: isinstance(event, ToolStatus))
        messages = await play.go_on()
    check(play.seen)
    *_, ended, half, _, rewind, error, _, _ = [event.type for event in play.events]
    assert (ended, half, rewind, error) == ("tool_call_complete", "message", "rewind", "tool_call_error")
    # A `rewind` keeps the text before the end of the other call.
    assert messages[-1]["content"] == "It is free. I do not know."


@pytest.mark.parametrize("confirm_since", ["", "wait_for_ever"])
async def test_a_call_that_was_open_ends_and_is_not_run_again(tmp_path: Path, confirm_since: str) -> None:
    waiting = chunks(call("wait_for_ever", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([waiting, chunks(text("I do not know."), finish("stop"))]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, ToolCallStart))
        play.settings = {"CONFIRM_TOOLS": confirm_since}
        await play.go_on(agrees=True)
    check(play.seen)
    *_, closed, said, last = play.events
    assert isinstance(closed, ToolCallError)
    assert (closed.code, closed.duration_ms) == ("interrupted", None)
    assert isinstance(said, Message)
    assert last == Done()
    # The page knows of it before it runs.
    assert play.ran in ([], ["wait 7"])
    # Not "Not run", and the user is not asked: whether it ran is unknown.
    assert closed.error == INTERRUPTED_CALL
    # In the words that the user reads.
    assert told(model.requests[1])[-1] == ("tool", f"Error: {closed.error}")


async def test_a_call_that_only_reads_runs_again_on_its_own_card(tmp_path: Path) -> None:
    looking = chunks(call("look", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([looking, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, ToolCallStart))
        messages = await play.go_on()
    check(play.seen)
    assert [event.type for event in play.events if isinstance(event, CallEvent)] == [
        "tool_call_start",
        "tool_call_complete",
    ]
    # Once at each server, unless the first was killed before it came to that.
    assert play.ran in (["look 7", "look 7"], ["look 7"])
    assert told(model.requests[1])[-1] == ("tool", "Seat 7 is free.")
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]


async def test_a_call_that_runs_again_is_counted_once(tmp_path: Path) -> None:
    looking = chunks(call("look", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([looking, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT, settings={"MAX_USER_CALLS_PER_DAY": "1"})

        async def wait_until_it_runs(client: httpx.AsyncClient) -> None:
            while not play.ran:
                await client.get("/ready")

        await play.run_until(lambda event: isinstance(event, ToolCallStart), do=wait_until_it_runs)
        await play.go_on()
        async with play.opened_store() as store:
            assert (await store.usage("ann").today()).calls == 1
    assert play.ran == ["look 7", "look 7"]
    assert told(model.requests[1])[-1] == ("tool", "Seat 7 is free.")


async def test_a_call_that_runs_again_stays_in_the_message_of_those_that_have_ended(tmp_path: Path) -> None:
    both = chunks(
        text(None, reasoning_content="Free? I look."),
        call("sell", '{"seat": 7}', index=0, call_id="c1"),
        call("look", '{"seat": 8}', index=1, call_id="c2"),
        finish("tool_calls"),
    )
    async with OpenAIServer([both, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, ToolCallComplete))
        await play.go_on()
    check(play.seen)
    _, asked, *results = model.requests[1]["messages"]
    assert asked["reasoning_content"] == "Free? I look."
    assert [one["id"] for one in asked["tool_calls"]] == ["c1", "c2"]
    assert sorted(one["tool_call_id"] for one in results) == ["c1", "c2"]


async def test_a_question_that_was_open_is_asked_again_and_its_answer_counts(tmp_path: Path) -> None:
    paying = chunks(call("refund", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([paying, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, InputRequest))
        await play.go_on(agrees=True)
    check(play.seen)
    first, second = [event for event in play.events if isinstance(event, InputRequest)]
    # By the same id: whoever was asked before may still answer.
    assert first == second
    assert play.ran == ["refund 7"]
    assert told(model.requests[1])[-1] == ("tool", "Seat 7 is paid back.")


async def test_an_answer_that_was_given_while_no_server_ran_the_call_counts(tmp_path: Path) -> None:
    paying = chunks(call("refund", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([paying, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, InputRequest))
        async with play.opened_store() as store:
            [question] = [event.request_id for event in play.events if isinstance(event, InputRequest)]
            assert await store.stored_runs("client").answer("run", question, GivenAnswer(True))
        await play.go_on()
    check(play.seen)
    assert [event.type for event in play.events].count("input_request") == 1
    assert play.ran == ["refund 7"]
    assert told(model.requests[1])[-1] == ("tool", "Seat 7 is paid back.")


CHANGED = {"arguments": {"seat": 8}}


async def test_changed_arguments_that_were_given_while_no_server_ran_the_call_count(tmp_path: Path) -> None:
    paying = chunks(call("refund", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([paying, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, InputRequest))
        async with play.opened_store() as store:
            [question] = [event.request_id for event in play.events if isinstance(event, InputRequest)]
            assert await store.stored_runs("client").answer("run", question, GivenAnswer(CHANGED))
        messages = await play.go_on()
    check(play.seen)
    assert play.ran == ["refund 8"]
    assert told(model.requests[1])[-1][1].endswith('It ran with {"seat":8}\n\nSeat 8 is paid back.')
    assert [row["arguments"] for row in messages if row["role"] == "tool"] == ['{"seat":8}']


async def test_call_never_runs_with_the_arguments_that_the_user_has_changed_away(tmp_path: Path) -> None:
    paying = chunks(call("refund", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([paying, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(
            lambda event: isinstance(event, ToolStatus) and event.data.status == "changed", agrees=CHANGED
        )
        messages = await play.go_on()
    check(play.seen)
    # The server may have been killed before the tool or in it.
    assert play.ran in ([], ["refund 8"])
    assert [row["arguments"] for row in messages if row["role"] == "tool"] == ['{"seat":8}']


async def test_an_approved_call_that_has_begun_is_not_run_again(tmp_path: Path) -> None:
    paying = chunks(call("refund_slowly", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([paying, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(
            lambda event: isinstance(event, ToolStatus) and event.data.message == "approved", agrees=True
        )
        await play.go_on()
    check(play.seen)
    assert len(play.ran) <= 1
    [error] = [event for event in play.events if isinstance(event, ToolCallError)]
    assert error.code == "interrupted"


async def test_a_run_cancelled_while_no_server_ran_it_ends_as_cancelled(tmp_path: Path) -> None:
    selling = chunks(call("wait_for_ever", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([selling, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, ToolCallStart))
        async with play.opened_store() as store:
            await store.stored_runs("client").cancel("run")
        await play.go_on()
    check(play.seen)
    assert play.events[-1] == Done(finish_reason="cancelled")
    assert len(model.requests) == 1


async def test_a_run_cancelled_while_no_server_ran_it_keeps_its_text(tmp_path: Path) -> None:
    selling = chunks(text("I sell it. "), call("sell", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([selling, chunks(text("Seat 7 is"), ending="hang")]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, Message) and event.content == "Seat 7 is")
        async with play.opened_store() as store:
            await store.stored_runs("client").cancel("run")
        rows = await play.go_on()
    check(play.seen)
    assert not any(isinstance(event, Rewind) for event in play.events)
    assert [row["content"] for row in rows if row["role"] == "assistant"] == ["I sell it. ", "Seat 7 is"]


async def test_a_run_that_is_older_than_runs_may_be_is_ended_and_asks_no_model(tmp_path: Path) -> None:
    waiting = chunks(call("wait_for_ever", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([waiting, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, ToolCallStart))
        asked = len(model.requests)
        async with play.opened_store() as store:
            await store.database.execute(update(runs).values(begun_at=runs.c.begun_at - 3600))
        await play.go_on()
    check(play.seen)
    assert isinstance(play.events[-1], Error)
    assert play.events[-1].code == "interrupted"
    assert len(model.requests) == asked
    assert play.scraped.sum("callboard_runs_taken_over_total", agent="careful") == 1
    assert play.scraped.sum("callboard_runs_total", agent="careful", ending="interrupted") == 1


async def test_the_text_of_a_run_that_no_server_continues_stays_in_its_chat(tmp_path: Path) -> None:
    async with OpenAIServer([SOLD, chunks(text("Seat 7 is"), text(" yours: ABC"), ending="hang")]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, Message) and "ABC" in event.content)
        async with play.opened_store() as store:
            await store.database.execute(update(runs).values(begun_at=runs.c.begun_at - 3600))
        messages = await play.go_on()
    assert play.events[-1] == STOPPED_DURING_ANSWER
    assert [(row["role"], row["content"]) for row in messages if row["role"] == "assistant"] == [
        ("assistant", "I sell it. "),
        ("assistant", "Seat 7 is yours: ABC"),
    ]


async def test_a_run_that_has_called_a_function_of_its_client_is_ended_and_its_calls_are_closed(tmp_path: Path) -> None:
    both = chunks(
        call("ring", "{}", index=0, call_id="c1"),
        call("wait_for_ever", '{"seat": 7}', index=1, call_id="c2"),
        finish("tool_calls"),
    )
    async with OpenAIServer([both, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT, asked={"functions": [{"name": "ring"}]})
        await play.run_until(lambda event: isinstance(event, ToolCallStart))
        messages = await play.go_on()
    check(play.seen)
    assert play.events[-1] == STOPPED_DURING_ANSWER
    results = [message["tool_output"] for message in messages if message["role"] == "tool"]
    assert results == [f"Error: {NOT_STARTED}", f"Error: {INTERRUPTED_CALL}"]
    assert len(model.requests) == 1


async def test_a_continued_run_keeps_its_count_of_rounds(tmp_path: Path) -> None:
    again = chunks(call("sell", '{"seat": 8}', call_id="c2"), finish("tool_calls"))
    script = answers(SOLD, chunks(text("And"), ending="hang"), again, ANSWER)
    async with OpenAIServer(script) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, Message) and event.content == "And")
        await play.go_on()
    check(play.seen)
    starts = [event for event in play.events if isinstance(event, ToolCallStart)]
    assert [event.round_index for event in starts] == [0, 1]
    assert len({event.tool_call_id for event in starts}) == 2
    assert len([event for event in play.events if isinstance(event, ToolCallComplete)]) == 2
    assert play.ran == ["sell 7", "sell 8"]


async def test_a_continued_run_keeps_its_count_of_calls_for_each_skill(tmp_path: Path) -> None:
    given = chunks(call("give", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    again = chunks(call("give", '{"seat": 8}', call_id="c2"), finish("tool_calls"))
    async with OpenAIServer(answers(given, chunks(text("And"), ending="hang"), again, ANSWER)) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, Message) and event.content == "And")
        await play.go_on()
    check(play.seen)
    [refused] = [event for event in play.events if isinstance(event, ToolCallError)]
    assert "'presents'" in refused.error
    assert play.ran == ["give 7"]


async def test_a_run_killed_before_its_first_text_starts_again(tmp_path: Path) -> None:
    async with OpenAIServer([chunks(ending="hang"), ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT)
        await play.run_until(lambda event: isinstance(event, RunStart), waits_for_model=True)
        await play.go_on()
    check(play.seen)
    assert [event.type for event in play.events] == ["run_start", "message", "done"]


def run_printed(folder: Path, command: str, copy: Path, url: str) -> None:
    """Run PostgreSQL's commands that `callboard backup` or `callboard restore` prints."""
    printed = run(folder, command, str(copy), DATABASE_URL=url).stderr
    [commands] = re.findall("itself: run (.+), with the password", printed)
    subprocess.run(commands, shell=True, check=True, capture_output=True)


@pytest.mark.needs("postgresql")
async def test_a_run_of_a_restored_postgresql_ends_and_its_tools_do_not_run_again(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = await new_database(request, "postgresql", tmp_path / "unused")
    copy = tmp_path / "copy.dump"

    async def back_up(_: httpx.AsyncClient) -> None:
        await asyncio.to_thread(run_printed, tmp_path, "backup", copy, url)

    looking = chunks(call("look", '{"seat": 7}', call_id="c1"), finish("tool_calls"))
    async with OpenAIServer([looking, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT, {"DATABASE_URL": url})
        await play.run_until(lambda event: isinstance(event, ToolCallStart), do=back_up)
        run_printed(tmp_path, "restore", copy, url)
        await play.go_on()
    check(play.seen)
    assert play.events[-1] == STOPPED_DURING_ANSWER
    assert play.ran == ["look 7"]
    assert len(model.requests) == 1
