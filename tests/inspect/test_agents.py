"""Agents as a person sees them, and the tools that a user has allowed always."""

from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from callboard import Agent, OpenAICompatible, Skill, tool
from callboard.skills.skill import SkillState
from callboard.testing import Call, FakeModel
from callboard_protocol import Status
from examples.demo import demo_agent
from tests.fakes.openai_server import Answer, Body, OpenAIServer, Refusal, chunks, finish
from tests.inspect.test_first_page import read
from tests.serving import ScriptedAgent, request, serving


@tool(requires_confirmation=True)
def sell(seats: int) -> str:
    """Sells seats."""
    return f"sold {seats}"


SELLING = Skill(
    "selling",
    "Sells seats.",
    "Never sell more than ten.",
    tools=(sell,),
    missing="print: pip install 'callboard[printing]'",
    conditions=lambda: ("printer: restarting, 0 tools: no paper",),
)


async def test_page_of_agent_of_another_class_shows_id_name_and_description_without_secrets(tmp_path: Path) -> None:
    other = ScriptedAgent(
        lambda context: demo_agent(0).run(context),
        "other",
        "The other one",
        "The key is sk-abcdefghijklmnop0123456789.",
    )
    secret = Agent("clerk", skills=(Skill("s", "s", secrets=("sk-abcdefghijklmnop0123456789",)),), model=FakeModel())
    async with serving(tmp_path, other, secret) as service:
        page = (await service.client.get("/inspect/agent?id=other")).text
        for shown in ("<bdi>other</bdi>", "The other one", "The key is [secret]."):
            assert shown in page
        assert "sk-abc" not in page
        assert "Prompt, as it is sent now" not in page


async def test_page_of_an_agent_shows_prompt_tools_and_missing_settings(tmp_path: Path) -> None:
    @asynccontextmanager
    async def open_printer(_: object) -> Any:
        yield SkillState(conditions=lambda: ("printer: ready, 1 tool",))

    printing = Skill("printing", "Prints.", lifespan=open_printer)
    clerk = Agent("clerk", "Sells.", (SELLING, printing), "You are a clerk.", name="Clerk", model=FakeModel())
    async with serving(tmp_path, clerk) as service:
        service.state.registry.unavailable["home"] = "needs CALLBOARD_HOME_ASSISTANT_URL"
        assert "needs CALLBOARD_HOME_ASSISTANT_URL" in await read(service, "agents")
        page = await read(service, "agent?id=clerk")
        for said in (
            "You are a clerk. Never sell more than ten.",
            "print: pip install 'callboard[printing]'",
            "printer: restarting, 0 tools: no paper",
            "printer: ready, 1 tool",
            "always asks first",
            '"seats"',
        ):
            assert said in page


async def test_a_tool_that_the_endpoint_refuses_is_named_in_the_answer_and_on_the_agents_pages(tmp_path: Path) -> None:
    def answer(body: Body) -> Answer:
        return Refusal(400, "Invalid schema for function 'sell'") if "tools" in body else chunks(finish("stop"))

    async with OpenAIServer(answer) as server, aclosing(OpenAICompatible(server.base_url, model="m")) as model:
        clerk = Agent("clerk", "Sells.", (SELLING,), model=model)
        async with serving(tmp_path, clerk) as service:
            events = await service.events(request(agent="clerk"))
            told = [event.content for event in events if isinstance(event, Status)]
            assert told == ["The tool sell is not offered: the model's endpoint refuses it"]
            for page in ("agents", "agent?id=clerk"):
                assert "Invalid schema for function" in await read(service, page)


async def test_tool_that_is_always_allowed_is_listed_in_its_chat_and_revoked(tmp_path: Path) -> None:
    model = FakeModel([Call("sell", seats=2)], "Sold.")
    async with serving(tmp_path, Agent("clerk", "Sells.", (SELLING,), model=model)) as service:
        body = request(agent="clerk", chat_id="c", run_id="r", user={"id": "ann"})
        await service.events_with_answer(body, "always")
        page = (await service.client.get("/inspect/chat?id=c")).text
        assert "Allowed always in this chat" in page
        token = page.split('name="token" value="')[1].split('"')[0]
        form = {"token": token, "chat": "c", "agent": "clerk", "tool": "sell"}
        assert (await service.client.post("/inspect/revoke", data=form)).status_code == 303
        assert "Allowed always in this chat" not in await read(service, "chat?id=c")
