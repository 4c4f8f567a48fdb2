"""A run as a person sees it: live, ended, each of its calls, and what its model was sent."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from callboard import Agent, Skill, tool
from callboard.agents import RunContext
from callboard.calls import ToolContext, ToolResult
from callboard.models import OpenAICompatible
from callboard.testing import Call, FakeModel
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    ToolCallComplete,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from examples.demo import demo_agent
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text, usage
from tests.inspect.looking import PHONE, Looking, in_a_browser, look
from tests.inspect.test_first_page import read
from tests.serving import ScriptedAgent, Service, request, serving


def url(service: Service, path: str) -> str:
    return f"{service.client.base_url}/inspect{path}"


class Slow:
    """An agent whose run goes on until the test lets it end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.is_working = asyncio.Event()

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Let me look.")
        yield ToolCallStart(tool_call_id="look", tool_name="look_around", tool_args={"where": "hall"})
        yield ToolCallStart(tool_call_id="ask", tool_name="open_door", tool_args={"door": "cellar"})
        half = ToolStatusData(status="processing", message="half of the hall", progress=50)
        yield ToolStatus(tool_call_id="look", data=half)
        waiting = ToolStatusData(status="pending", message="waiting for approval")
        yield ToolStatus(tool_call_id="ask", data=waiting)
        yield InputRequest(request_id="q", kind="confirmation", title="Run open_door?", tool_call_id="ask")
        self.is_working.set()
        await self.may_end.wait()
        yield ToolStatus(tool_call_id="ask", data=ToolStatusData(status="processing", message="approved"))
        yield ToolCallComplete(tool_call_id="look", result='{"seen": ["a lamp", "a door"]}')
        yield ToolCallComplete(tool_call_id="ask", result="open")
        yield Message(content="There is a lamp.")
        yield Done()


@in_a_browser
async def test_page_of_a_running_run_is_live_and_stops_it(looking: Looking, tmp_path: Path) -> None:
    slow = Slow()
    async with serving(tmp_path, ScriptedAgent(slow.run)) as service:
        running = asyncio.create_task(service.events(request(chat_id="c", run_id="r", user={"id": "ann"})))
        await slow.is_working.wait()
        page = looking.page
        await page.goto(url(service, ""))
        row = page.get_by_role("row", name="look_around")
        await expect(row).to_contain_text("half of the hall")
        await expect(row).to_contain_text("50 %")
        await expect(row).to_contain_text("ann")
        await looking.check("now-live")
        await row.get_by_role("link").first.click()
        await expect(page.locator(".timeline .bar.waiting")).to_have_count(1)
        await expect(page.locator(".timeline .state.waiting")).to_have_text("waiting for approval")
        await looking.check("run-live")
        await looking.page.get_by_role("button", name="Stop").click()
        assert (await running)[-1] == Done(finish_reason="cancelled")
        await expect(page.locator(".facts .state")).to_have_text("stopped")
        await expect(page.locator("#live")).not_to_have_attribute("data-hx-trigger", "every 1s")
        await expect(page.get_by_role("button", name="Stop")).to_have_count(0)


async def test_a_message_that_is_sent_on_the_page_is_in_the_timeline_after_a_restart_too(tmp_path: Path) -> None:
    is_working, may_end = asyncio.Event(), asyncio.Event()

    async def listen(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="I look. ")
        is_working.set()
        await may_end.wait()
        for said in await context.take_messages():
            yield said
        yield Message(content="Both.")

    async with serving(tmp_path, ScriptedAgent(listen)) as service:
        running = asyncio.create_task(service.events(request(chat_id="c", run_id="r", user={"id": "ann"})))
        await is_working.wait()
        form_page = (await service.client.get("/inspect/run?id=r&chat=c")).text
        [token, *_] = re.findall('name="token" value="([^"]+)"', form_page)
        form = {"token": token, "content": "The <b>cellar</b> too."}
        assert (await service.client.post("/inspect/say?run=r&of=ann", data=form)).status_code == 303
        may_end.set()
        await running
        pages = [await read(service, "run?id=r&chat=c")]
    async with serving(tmp_path, ScriptedAgent(listen)) as service:
        pages.append(await read(service, "run?id=r&chat=c"))
    for page in pages:
        assert "The user: The <b>cellar</b> too." in page
        assert "I look. Both." in page


async def test_cost_of_a_run_and_of_a_request_is_shown_if_the_endpoint_reports_it(tmp_path: Path) -> None:
    asked = chunks(call("remember_number", '{"number": 6}', call_id="c1"), finish("tool_calls"), usage(9, 2, cost=0.25))
    answers = [asked, chunks(text("Done."), finish("stop"), usage(20, 3, cost=0.0000004))]
    skill = Skill("numbers", "Numbers.", tools=(remember_number,))
    async with (
        OpenAIServer([*answers, chunks(text("Hello."), finish("stop"), usage(9, 2))]) as endpoint,
        aclosing(OpenAICompatible(endpoint.base_url, model="m")) as model,
    ):
        async with serving(tmp_path, Agent("clerk", skills=(skill,), model=model)) as service:
            for run_id in ("r", "unpriced"):
                await service.events(request(agent="clerk", chat_id="c", run_id=run_id, message_id=run_id))

            async def read(path: str) -> str:
                return " ".join(re.sub("<[^>]*>", " ", (await service.client.get(f"/inspect/{path}")).text).split())

            assert "Tokens 29 in, 5 out Cost 0.25 as the endpoint counts" in await read("run?id=r&chat=c")
            assert "9 → 2 tokens, cost 0.25" in await read("run?id=r&chat=c")
            assert "20 → 3 tokens, cost less than 0.000001" in await read("run?id=r&chat=c")
            assert "Cost of its request 0.25 as the endpoint counts" in await read("call?id=c1&run=r&chat=c")
            assert "Cost 0.25 as the endpoint counts" in await read("sent?run=r&chat=c")
            assert "ost 0" not in await read("run?id=unpriced&chat=c")


async def test_a_run_with_many_calls_is_split_into_pages(tmp_path: Path) -> None:
    async def many(_: RunContext) -> AsyncIterator[Event]:
        for number in range(450):
            yield ToolCallStart(tool_call_id=f"c{number}", tool_name=f"tool_{number}")
            yield ToolCallComplete(tool_call_id=f"c{number}", result="x")

    async with serving(tmp_path, ScriptedAgent(many)) as service:
        await service.events(request(chat_id="c", run_id="r"))
        first = (await service.client.get("/inspect/run?id=r&chat=c")).text
        last = (await service.client.get("/inspect/run?id=r&chat=c&cursor=2")).text
        assert "tool_199" in first
        assert "tool_200" not in first
        assert "cursor=1" in first
        assert "tool_449" in last
        assert "cursor=3" not in last


@in_a_browser
async def test_a_page_needs_no_scripts(browser: Browser, tmp_path: Path) -> None:
    slow = Slow()
    async with serving(tmp_path, ScriptedAgent(slow.run)) as service, look(browser, scripts=False) as looking:
        running = asyncio.create_task(service.events(request(chat_id="c", run_id="r")))
        await slow.is_working.wait()
        page = looking.page
        await page.goto(url(service, "/run?id=r&chat=c"))
        await expect(page.locator(".facts .state")).to_have_text("waiting for approval")
        slow.may_end.set()
        await running
        # It is loaded anew by itself.
        await expect(page.locator(".facts .state")).to_have_text("done")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@in_a_browser
async def test_every_page_fits_a_phone_in_both_colours(browser: Browser, tmp_path: Path, scheme: Any) -> None:
    async with serving(tmp_path, demo_agent(0)) as service, look(browser, PHONE, scheme) as looking:
        say = [{"role": "user", "content": "fail, cite, picture and big"}]
        await service.events(request(agent="demo", chat_id="c", run_id="r", message_id="m", messages=say))
        calls = (await service.client.get("/v1/chats/c/timeline")).json()["tool_calls"]
        ids = {call["tool_name"]: call["tool_call_id"] for call in calls}
        pages = {
            "now": "",
            "run": "/run?id=r&chat=c",
            "picture": f"/call?id={ids['draw_picture']}&run=r&chat=c",
            "call": f"/call?id={ids['search_archive']}&run=r&chat=c",
            "sent": "/sent?run=r&chat=c&request=2",
            "chats": "/chats",
            "chat": "/chat?id=c",
            "calls": "/calls",
            "agents": "/agents",
            "agent": "/agent?id=demo",
        }
        for name, path in pages.items():
            await looking.page.goto(url(service, path))
            await looking.check(f"phone-{scheme}-{name}")
            if name == "picture":
                assert await looking.page.locator("img.picture").evaluate("image => image.naturalWidth") > 0


@tool(read_only=True)
async def remember_number(context: ToolContext, number: int) -> ToolResult:
    """Remembers a number."""
    await context.status("processing", "writing it down", progress=10)
    return ToolResult(f"remembered {number}")


def said(*turns: tuple[str, str]) -> list[dict[str, str]]:
    """Turns as a client sends them: what was asked, and the id of the answer."""
    found = []
    for question, answer_id in turns:
        found += [
            {"role": "user", "content": question},
            {"role": "assistant", "id": answer_id, "content": f"So {answer_id}."},
        ]
    return found


async def test_conversation_given_to_a_framework_is_shown_if_its_requests_are_unknown(tmp_path: Path) -> None:
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.test import TestModel

    from callboard.frameworks.pydantic_ai import from_pydantic_ai

    greeter = from_pydantic_ai(PydanticAgent(TestModel(custom_output_text="Hello."), name="greeter"))
    async with serving(tmp_path, greeter) as service:
        messages = [*said(("Who are you?", "m0")), {"role": "user", "content": "Greet Ann"}]
        await service.events(request(agent="greeter", chat_id="c", run_id="r", message_id="m", messages=messages))
        page = (await service.client.get("/inspect/sent?run=r&chat=c")).text
        assert "The framework does not report" in page
        assert "Greet Ann" in page


async def test_a_run_without_a_chat_is_shown_from_memory(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        say = [{"role": "user", "content": "fail"}]
        await service.events(request(agent="demo", run_id="r", messages=say, user={"id": "ann"}))
        page = (await service.client.get("/inspect/run?id=r")).text
        assert "1 call failed" in page
        call = unescape(next(link for link in re.findall(r'href="(/inspect/call\?id=[^"]*)"', page)))
        assert "Why it failed" in (await service.client.get(call)).text


async def test_wrong_run_in_a_url_shows_nothing_of_another_run(tmp_path: Path) -> None:
    model = FakeModel([Call("remember_number", number=6)], "Done.", [Call("remember_number", number=7)], "Done.")
    clerk = Agent("clerk", skills=(Skill("numbers", "Numbers.", tools=(remember_number,)),), model=model)
    async with serving(tmp_path, clerk) as service:
        for name in ("ann", "bob"):
            body = request(agent="clerk", chat_id=f"of-{name}", run_id=f"run-of-{name}", message_id=name)
            await service.events({**body, "user": {"id": name}})
        calls = (await service.client.get("/v1/tool-calls?user_id=ann")).json()["tool_calls"]
        place = f"id={calls[0]['tool_call_id']}&chat=of-ann"
        for who in ("", "&user=ann"):
            page = (await service.client.get(f"/inspect/call?{place}&run=run-of-bob{who}")).text
            assert "sent?" in page
            assert "run=run-of-ann" in page
            assert "run-of-bob" not in page
        for path in ("run?id=run-of-bob&chat=of-ann", "sent?run=run-of-bob&chat=of-ann"):
            for who in ("", "&user=ann"):
                assert (await service.client.get(f"/inspect/{path}{who}")).status_code == 404


async def test_run_before_a_restart_is_shown_from_the_store(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await service.events(request(agent="demo", chat_id="c", run_id="r", message_id="m"))
    async with serving(tmp_path, demo_agent(0)) as service:
        page = (await service.client.get("/inspect/run?id=r&chat=c")).text
        assert "The requests to the model are not kept" in page
        assert "book_table" in page
        missing = await service.client.get("/inspect/sent?run=r&chat=c")
        assert missing.status_code == 404
        assert "no longer available" in missing.text


async def test_result_of_a_call_is_shown_by_its_kind(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        say = [{"role": "user", "content": "cite, picture, slow, fail"}]
        await service.events(request(agent="demo", chat_id="c", run_id="r", message_id="m", messages=say))
        calls = (await service.client.get("/v1/chats/c/timeline")).json()["tool_calls"]
        shown = {
            call["tool_name"]: await read(service, f"call?id={call['tool_call_id']}&run=r&chat=c") for call in calls
        }
        assert "The Globe" in shown["search_archive"]
        assert "Sketching" in shown["generate_image"]
        assert "100 %" in shown["generate_image"]
        assert '"prompt": "an empty stage at dawn"' in shown["generate_image"]
        assert "Why it failed" in shown["book_table"]
        assert "fully booked" in shown["book_table"]
        sent = await read(service, "sent?run=r&chat=c&request=2")
        assert "cite, picture, slow, fail" in sent


async def test_replayed_messages_and_repaired_calls_are_marked(tmp_path: Path) -> None:
    model = FakeModel([Call("remember_number", number=6), Call("Remember-Number", '{"number": 7,}')], "Done.", "I do.")
    clerk = Agent("clerk", skills=(Skill("numbers", "Numbers.", tools=(remember_number,)),), model=model)
    async with serving(tmp_path, clerk) as service:
        later = [*said(("Remember 7", "m1")), {"role": "user", "content": "Which?"}]
        for run_id, messages in (("one", later[:1]), ("two", later)):
            answer_id = "m1" if run_id == "one" else "m2"
            ids = {"chat_id": "c", "run_id": run_id, "message_id": answer_id}
            await service.events(request(agent="clerk", messages=messages, **ids))
        sent = (await service.client.get("/inspect/sent?run=two&chat=c")).text
        assert sent.count('class="mark replayed"') == 3
        assert "remembered 7" in sent
        [_, repaired] = (await service.client.get("/v1/chats/c/timeline")).json()["tool_calls"]
        page = await read(service, f"call?id={repaired['tool_call_id']}&run=one&chat=c")
        assert "How it was written" in page
        assert "Remember-Number" in page


async def test_messages_that_were_left_out_are_shown(tmp_path: Path) -> None:
    long = "Where is the umbrella? " * 40
    model = FakeModel([Call("remember_number", number=0)], "Done.", "Once more.", "Here.")
    clerk = Agent("clerk", skills=(Skill("numbers", "Numbers.", tools=(remember_number,)),), model=model)
    async with serving(tmp_path, clerk, history_tokens=400) as service:
        turns = [(f"{long}{number}", f"m{number}") for number in range(2)]
        for number in range(3):
            messages = [*said(*turns[:number]), {"role": "user", "content": f"{long}{number}"}]
            body = request(agent="clerk", chat_id="c", run_id=f"r{number}", message_id=f"m{number}", messages=messages)
            await service.events(body)
        page = await read(service, "sent?run=r2&chat=c")
        assert "left out: the history is limited" in page
        assert "921 characters" in page
        assert "remembered 0" in page
