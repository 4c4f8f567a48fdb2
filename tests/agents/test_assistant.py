"""The assistant, on a server of which nothing is set but where the model is."""

from pathlib import Path

import httpx

from callboard_protocol import Decoder, Done, Event, Message, ToolCallComplete, decode
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text
from tests.processes import serving


async def test_with_the_models_address_alone_the_assistant_is_of_use(tmp_path: Path) -> None:
    asked = chunks(call("time", '{"zone": "Europe/Lisbon"}', call_id="c"), finish("tool_calls"))
    answers = [asked, chunks(text("Time for tea."), finish("stop"))]
    body = {"agent": "assistant", "messages": [{"role": "user", "content": "How late is it in Lisbon?"}]}
    async with OpenAIServer(answers, models=["the-only-one"]) as model:
        with serving(tmp_path, MODEL_BASE_URL=model.base_url) as (url, _):
            async with httpx.AsyncClient(base_url=url, timeout=None) as client:
                stream = (await client.post("/v1/runs", json=body)).content
    events: list[Event] = [event for frame in Decoder().feed(stream) if (event := decode(frame))]
    [told] = [event.result for event in events if isinstance(event, ToolCallComplete)]
    assert "Lisbon" in told
    assert Message(content="Time for tea.") in events
    assert events[-1] == Done()
    assert [request["model"] for request in model.requests] == ["the-only-one"] * 2
    offered = {tool["function"]["name"] for tool in model.requests[0]["tools"]}
    assert offered == {"search", "web_fetch", "memory", "history", "profile", "self", "model", "time"}
