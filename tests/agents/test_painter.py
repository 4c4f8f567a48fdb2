"""The agent of the README, as it stands: it loads, paints with progress, and answers."""

from pathlib import Path

from callboard.agents import load_all_agents
from callboard.settings import Settings
from callboard_protocol import Message, ToolCallComplete, ToolStatus
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.serving import request, serving

EXAMPLE = Path(__file__).parents[2] / "server" / "examples" / "painter.py"


async def test_the_painter_paints_in_sight(tmp_path: Path) -> None:
    loaded = load_all_agents(Settings(agents=(str(EXAMPLE),)))
    assert loaded.problems == []
    painter = loaded.registry.get("painter")
    asked = chunks(call("generate_image", '{"prompt": "an empty stage"}', call_id="c"), finish("tool_calls"))
    async with OpenAIServer([asked, chunks(text("Here it is."), finish("stop"))]) as model:
        async with serving(tmp_path, painter, model_base_url=model.base_url, model="m") as service:
            events = await service.events(request(agent="painter"))
    assert [event.data.progress for event in events if isinstance(event, ToolStatus)] == list(range(0, 100, 10))
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["A picture of an empty stage."]
    assert Message(content="Here it is.") in events
    offered = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
    assert offered == ["generate_image", "search", "web_fetch", "memory"]
