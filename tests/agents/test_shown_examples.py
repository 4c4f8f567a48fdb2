"""The examples that the how-to pages show: each loads into a real server and does what its page says."""

import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from callboard.agents import Agent, AgentLike
from callboard.agents.loading import load_all_agents
from callboard.settings import Settings, unknown_settings
from callboard_protocol import Message, ToolCallComplete, ToolCallError, ToolCallStart, ToolStatus
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.serving import request, serving

EXAMPLES = Path(__file__).parents[2] / "server" / "examples"
ANN = {"id": "ann", "name": "Ann"}


def loaded(name: str, agent_id: str) -> AgentLike:
    found = load_all_agents(Settings(agents=(str(EXAMPLES / name),)))
    assert found.problems == []
    return found.registry.get(agent_id)


def test_the_agent_that_the_page_begins_with_is_found_with_its_tools(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "own-agent.md").read_text()
    file = tmp_path / "news.py"
    file.write_text(page.partition("```python\n")[2].partition("```")[0])
    found = load_all_agents(Settings(agents=(str(file),)))
    assert found.problems == []
    agent = found.registry.get("news")
    assert isinstance(agent, Agent)
    assert {"search", "time"} <= {tool.name for tool in agent.tools}
    assert agent.build_system_prompt().startswith("You tell what happened, with sources.")


async def test_the_echo_shows_a_call_and_says_what_was_said(tmp_path: Path) -> None:
    async with serving(tmp_path, loaded("echo.py", "echo")) as service:
        events = await service.events(request(agent="echo", chat_id="c"))
    assert [event.tool_args for event in events if isinstance(event, ToolCallStart)] == [{"text": "hi"}]
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["hi"]
    assert Message(content="hi") in events


async def test_the_shopper_keeps_a_list_for_each_user_and_asks_before_it_clears_it(
    tmp_path: Path,
) -> None:
    shopper = loaded("shopping.py", "shopper")
    assert isinstance(shopper, Agent)
    assert [tool.name for tool in shopper.tools if tool.asks_first({})] == ["clear_list"]
    answers = [
        chunks(
            call("add_to_list", '{"item": "milk", "amount": 2}', call_id="a"),
            call("add_to_list", '{"item": "salt", "amount": 99}', call_id="b", index=1),
            finish("tool_calls"),
        ),
        chunks(text("Done."), finish("stop")),
        chunks(call("read_list", "{}", call_id="c"), finish("tool_calls")),
        chunks(text("2 × milk."), finish("stop")),
        chunks(call("read_list", "{}", call_id="d"), finish("tool_calls")),
        chunks(text("Nothing."), finish("stop")),
    ]
    async with OpenAIServer(answers) as model:
        async with serving(tmp_path, shopper, model_base_url=model.base_url, model="m") as service:
            added = await service.events(request(agent="shopper", user=ANN))
            hers = await service.events(request(agent="shopper", user=ANN))
            his = await service.events(request(agent="shopper", user={"id": "bob"}))
    assert [event.result for event in added if isinstance(event, ToolCallComplete)] == ["2 × milk is on the list."]
    assert [event.code for event in added if isinstance(event, ToolCallError)] == ["tool_failed"]
    assert [event.result for event in hers if isinstance(event, ToolCallComplete)] == ['["2 × milk"]']
    assert [event.result for event in his if isinstance(event, ToolCallComplete)] == ["[]"]


async def test_the_notary_keeps_notes_for_each_user_and_shows_them_at_a_route_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_NOTES_MOST", "2")
    notary = loaded("notes_skill.py", "notary")
    assert unknown_settings({"CALLBOARD_NOTES_MOST": "2"}) == []
    written = [("tea", "Green."), ("cats", "Two."), ("tea", "Black."), ("chess", "On Sundays.")]
    calls = [
        chunks(call("write_note", json.dumps({"title": title, "text": text}), call_id="c"), finish("tool_calls"))
        for title, text in written
    ]
    answers = [answer for asked in calls for answer in (asked, chunks(text("Done."), finish("stop")))]
    ended: list[str] = []
    async with OpenAIServer(answers) as model:
        settings = {"model_base_url": model.base_url, "model": "m", "api_key": SecretStr("a-long-key")}
        async with serving(tmp_path, notary, **settings) as service:
            refused = await service.client.get("/skills/notes/all", params={"user_id": "ann"})
            service.client.headers["Authorization"] = "Bearer a-long-key"
            for _ in written:
                events = await service.events(request(agent="notary", user=ANN))
                ended += [event.type for event in events if isinstance(event, ToolCallComplete | ToolCallError)]
        # What it keeps outlives the server.
        async with serving(tmp_path, notary, **settings) as service:
            service.client.headers["Authorization"] = "Bearer a-long-key"
            hers = await service.client.get("/skills/notes/all", params={"user_id": "ann"})
            his = await service.client.get("/skills/notes/all", params={"user_id": "bob"})
    assert refused.status_code == 401
    assert ended == [*["tool_call_complete"] * 3, "tool_call_error"]
    assert (hers.json(), his.json()) == ({"cats": "Two.", "tea": "Black."}, {})


async def test_the_painter_paints_in_sight(tmp_path: Path) -> None:
    painter = loaded("painter.py", "painter")
    asked = chunks(call("generate_image", '{"prompt": "an empty stage"}', call_id="c"), finish("tool_calls"))
    async with OpenAIServer([asked, chunks(text("Here it is."), finish("stop"))]) as model:
        async with serving(tmp_path, painter, model_base_url=model.base_url, model="m") as service:
            events = await service.events(request(agent="painter"))
    assert [event.data.progress for event in events if isinstance(event, ToolStatus)] == list(range(0, 100, 10))
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["A picture of an empty stage."]
    assert Message(content="Here it is.") in events
    offered = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
    assert offered == ["generate_image", "search", "web_fetch", "memory"]
