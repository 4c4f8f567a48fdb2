"""Which calls of an agent of the OpenAI Agents SDK the user is asked about."""

from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import OpenAIServer
from tests.frameworks.scenario import scenario
from tests.frameworks.scenarios import calls, says
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool

    from tests.frameworks.openai_agents_stage import UNTRACED, solo


async def test_a_policy_decides_which_calls_need_approval(tmp_path: Path) -> None:
    async def is_system_disk(_: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return bool(arguments["disk"] == "C")

    toolbox = Toolbox()
    wipe = function_tool(toolbox.plain("wipe"), needs_approval=is_system_disk)
    both = calls(("wipe", '{"disk": "C"}'), ("wipe", '{"disk": "D"}'))
    seen, _ = await perform(solo(wipe), scenario([both, says("Done.")], reply=False), tmp_path)
    assert toolbox.wiped == ["D"]
    lines = seen.lines(in_order=True)
    assert "ask 1 Run wipe?" in lines
    assert "ask 2 Run wipe?" not in lines
    assert "failed 1 denied" in lines
    assert any(line.startswith("tool Error: Not run: the user refused it.") for line in seen.sent())


async def test_policy_gets_arguments_as_from_sdk(tmp_path: Path) -> None:
    async def is_fine(*_: Any) -> bool:
        return False

    # Its argument becomes another than the one that the model wrote, and so than the one that a policy could see.
    wanted = calls(("add", '{"a": "2", "b": 3}'))
    tool = function_tool(Toolbox().plain("add"), needs_approval=is_fine)
    script = [wanted, says("5.")]
    async with OpenAIServer(script) as server, AsyncOpenAI(base_url=server.base_url, api_key="key") as client:
        agent = Agent("agent", model=OpenAIChatCompletionsModel("m", client), tools=[tool])
        alone = Runner.run_streamed(agent, "go", run_config=UNTRACED)
        async for _ in alone.stream_events():
            pass
    seen, _toolbox = await perform(solo(tool), scenario(script, reply=True), tmp_path)
    assert ("ask 1 Run add?" in seen.lines(in_order=True)) == bool(alone.interruptions)


async def test_several_approvals_are_asked_for_at_once(tmp_path: Path) -> None:
    toolbox = Toolbox()
    wipe = function_tool(toolbox.plain("wipe"), needs_approval=True)
    both = calls(("wipe", '{"disk": "C"}'), ("wipe", '{"disk": "D"}'))
    await perform(solo(wipe), scenario([both, says("Done.")], reply=True, asked_at_once=2), tmp_path)
    assert sorted(toolbox.wiped) == ["C", "D"]


async def test_user_is_not_asked_about_unreadable_arguments(tmp_path: Path) -> None:
    wipe = function_tool(Toolbox().plain("wipe"), needs_approval=True)
    seen, _ = await perform(solo(wipe), scenario([calls(("wipe", '{"disk": C')), says("No.")], reply=True), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["failed 1 invalid_args", "say No.", "done stop"]
    assert seen.sent()[1] == "assistant calls wipe {}"
    assert "JSON" in seen.sent()[2]
