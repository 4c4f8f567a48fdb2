"""The inspector elsewhere: below a prefix of another application, without a database, by keyboard alone."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from playwright.async_api import Browser, expect
from starlette.routing import Mount, Router
from starlette.types import Receive, Scope, Send

from callboard._application.application import Application, Callboard
from callboard.agents import RunContext
from callboard.http.auth import api_key
from callboard.settings import Settings
from callboard.testing.serving import listening
from callboard_protocol import Done, Event, ToolCallStart
from examples.demo import demo_agent
from tests.inspect.looking import in_a_browser, look
from tests.inspect.test_first_page import read_rows
from tests.serving import ScriptedAgent, request, serving

BODY = request(agent="demo", chat_id="c", run_id="r", messages=[{"role": "user", "content": "fail"}])


class Below(Application):
    """An application whose board stands below a prefix of another."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
            return
        await Router(routes=[Mount("/board", super().__call__)])(scope, receive, send)


@asynccontextmanager
async def serve(app: Application) -> AsyncIterator[httpx.AsyncClient]:
    async with listening(app) as url, httpx.AsyncClient(base_url=url, timeout=None) as http:
        yield http


async def test_every_link_keeps_the_path_prefix(tmp_path: Path) -> None:
    board = Callboard([demo_agent(0)], authenticate=api_key("a-long-secret"), settings=Settings(data_dir=tmp_path))
    async with serve(Below(board)) as http:
        key = {"Authorization": "Bearer a-long-secret"}
        await http.post("/board/v1/runs", json=BODY, headers=key)
        signed_in = await http.post("/board/inspect/sign-in", data={"key": "a-long-secret", "wanted": "/chats"})
        assert signed_in.headers["location"] == "/board/inspect/chats"
        assert "Path=/board/inspect;" in signed_in.headers["set-cookie"]
        for path in ("/board/inspect", "/board/inspect/run?id=r&chat=c", "/board/inspect/calls"):
            page = await http.get(path)
            assert page.status_code == 200
            links = re.findall(r'(?:href|src|action|hx-get)="([^"#]*)"', page.text)
            assert all(link.startswith(("/board/inspect/", "data:,")) for link in links if link), links
        assert (await http.get("/board/inspect/assets/inspect.css")).status_code == 200
        assert (await http.get("/inspect/")).status_code == 404


async def test_pages_without_a_database_show_runs_in_memory(tmp_path: Path) -> None:
    board = Callboard([demo_agent(0)], store=None, settings=Settings(data_dir=tmp_path))
    async with serve(board.asgi()) as http:
        await http.post("/v1/runs", json=BODY)
        for path in ("", "run?id=r&chat=c", "chats?text=fail", "chat?id=c", "calls?text=booked"):
            page = await http.get(f"/inspect/{path}")
            assert page.status_code == 200
            assert "book_table" in page.text or "fail" in page.text


async def test_a_run_of_another_server_is_listed_and_stopped_too(tmp_path: Path) -> None:
    is_working = asyncio.Event()

    async def work(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="look_around")
        is_working.set()
        await asyncio.Event().wait()

    agent = ScriptedAgent(work)
    async with serving(tmp_path, agent) as owner, serving(tmp_path, agent) as other:
        ann = {"id": "ann", "name": "Ann Lee"}
        running = asyncio.create_task(owner.events(request(chat_id="c", run_id="r", user=ann)))
        await is_working.wait()
        for service, at_work in ((owner, "look_around"), (other, "only its server knows")):
            [row] = await read_rows(service)
            assert row.startswith(f"hi running Scripted Ann Lee {at_work}")
        page = (await other.client.get("/inspect/")).text
        assert "look_around" in (await other.client.get("/inspect/run?id=r&chat=c")).text
        assert "only its server knows" not in (await other.client.get("/inspect/?user=bob")).text
        [token] = set(re.findall(r'name="token" value="(\w+)"', page))
        form = {"token": token}
        for query in ("run=r&of=ann&user=bob", "run=r&of=bob", "run=r"):
            assert (await other.client.post(f"/inspect/stop?{query}", data=form)).status_code == 404
        assert (await other.client.post("/inspect/stop?run=r&of=ann", data=form)).status_code == 303
        assert (await running)[-1] == Done(finish_reason="cancelled")
        for service in (owner, other):
            assert await read_rows(service) == ["hi Scripted Ann Lee 1 stopped it was stopped just now"]


@in_a_browser
async def test_the_pages_are_used_by_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service, look(browser) as looking:
        await service.events(BODY)
        page = looking.page
        await page.goto(f"{service.client.base_url}/inspect/")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        # The page is asked for anew each second, and what has the focus keeps it.
        async with page.expect_response(lambda response: response.url.endswith("/inspect/")):
            pass
        focused = page.locator(":focus")
        await expect(focused).to_have_text("waiting for approval")
        for _ in ("failed today", "failed yesterday", "the question"):
            await page.keyboard.press("Tab")
        await expect(focused).to_have_text("fail")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Why it failed")).to_be_visible()
