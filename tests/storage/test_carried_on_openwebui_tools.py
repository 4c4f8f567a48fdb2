"""After a server was killed in a call of one of Open WebUI's tools, the client's result still counts."""

from pathlib import Path

import pytest

from callboard.storage import GivenAnswer
from callboard_protocol import Done, ToolCallComplete, ToolRequest
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.runs.killing import Killing, told
from tests.runs.promises import check

pytestmark = pytest.mark.timeout(120)

AGENT = str(Path(__file__).with_name("careful_agent.py"))
ASKED = {"openwebui_tools": [{"name": "weather", "description": "Tells the weather."}]}
CALL = chunks(call("weather", '{"city": "Rome"}', call_id="c1"), finish("tool_calls"))
ANSWER = chunks(text("It is sunny."), finish("stop"))


async def test_request_that_was_open_is_sent_again_with_the_same_id(tmp_path: Path) -> None:
    async with OpenAIServer([CALL, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT, asked=ASKED)
        await play.run_until(lambda event: isinstance(event, ToolRequest))
        await play.go_on(tool_result="Sunny.")
    check(play.seen)
    first, second = [event for event in play.events if isinstance(event, ToolRequest)]
    assert first == second
    assert [event.result for event in play.events if isinstance(event, ToolCallComplete)] == ["Sunny."]
    assert play.events[-1] == Done()


async def test_result_that_was_sent_while_no_server_ran_the_call_counts(tmp_path: Path) -> None:
    async with OpenAIServer([CALL, ANSWER]) as model:
        play = Killing(tmp_path, model, AGENT, asked=ASKED)
        await play.run_until(lambda event: isinstance(event, ToolRequest))
        async with play.opened_store() as store:
            stored_runs = store.stored_runs("another server")
            assert await stored_runs.answer("run", "tool:c1", GivenAnswer({"text": "Sunny."}))
        await play.go_on()
    check(play.seen)
    assert len([event for event in play.events if isinstance(event, ToolRequest)]) == 1
    assert told(model.requests[1])[-1] == ("tool", "Sunny.")
    assert play.events[-1] == Done()
