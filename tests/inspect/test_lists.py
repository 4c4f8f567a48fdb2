"""What is stored, as a person looks through it: chats, calls, tools; and Forget."""

import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from callboard._history import HistoryCall, Turn
from callboard.storage import Store
from examples.demo import demo_agent
from tests.inspect.looking import PHONE, Looking, look
from tests.serving import Service, request, serving
from tests.storage.turns import StoredSteps

pytestmark = [pytest.mark.needs("browser"), pytest.mark.asyncio(loop_scope="session")]

CALLS_OF_A_LONG_CHAT = 10_000
CALLS_OF_A_SHORT_CHAT = 2_600
"""So many that every list has a second page."""


def url(service: Service, path: str) -> str:
    return f"{service.client.base_url}/inspect{path}"


async def play(service: Service, chat_id: str, say: str, user_id: str = "ann") -> None:
    messages = [{"role": "user", "content": say}]
    body = request(agent="demo", chat_id=chat_id, message_id=f"m-{chat_id}", messages=messages, user={"id": user_id})
    await service.events(body)


async def write_long_chat(store: Store, count: int, begin: int = 0) -> None:
    """A chat of so many calls, in turns of a hundred; `begin` are there already."""
    for first in range(begin, count, 100):
        turn = Turn("long", f"run{first}", f"m{first}", "ann", f"Question {first}", agent_id="demo")
        journal = StoredSteps(store, turn)
        await journal.begin()
        for number in range(first, first + 100):
            call_id = f"call{number}"
            await journal.call_started(HistoryCall(call_id, f"tool_{number % 7}", f'{{"n": {number}}}', number), "")
            code = "tool_failed" if number % 50 == 0 else None
            await journal.call_ended(call_id, f"result {number} " + "x" * 500, code, number % 1000)
        await journal.finish("So it is.", is_answered=True)


async def test_chats_are_found_by_their_text(looking: Looking, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await play(service, "one", "fail: where is my umbrella?")
        await play(service, "two", "cite an old theatre", "bob")
        page = looking.page
        await page.goto(url(service, "/chats"))
        await expect(page.locator("tbody tr")).to_have_count(2)
        await looking.check("chats")
        await page.get_by_label("Words that were said").fill("umbrellas")
        await page.keyboard.press("Enter")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.get_by_role("link", name="fail: where is my umbrella?").click()
        await expect(page.get_by_role("link", name="1 call failed")).to_be_visible()
        await looking.check("chat")


async def look_for_todays_calls_of_bob(page: Page, tool: str) -> None:
    """Fill in what calls and chats alike are narrowed by, and search."""
    await page.get_by_label("Tool").fill(tool)
    await page.get_by_label("Agent").select_option("demo")
    await page.get_by_label("From").fill(time.strftime("%Y-%m-%d", time.gmtime()))
    await page.get_by_label("User").fill("bob")
    await page.get_by_role("button", name="Search").click()


async def test_chats_are_found_by_tool_status_agent_user_and_time(looking: Looking, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await play(service, "one", "fail and slow")
        await play(service, "two", "cite an old theatre", "bob")
        await play(service, "three", "slow", "bob")
        page = looking.page
        await page.goto(url(service, "/chats"))
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(3)
        await page.get_by_label("Status of a call").select_option("error")
        await page.get_by_role("button", name="Search").click()
        await expect(rows).to_have_count(1)
        await expect(page.get_by_role("link", name="fail and slow")).to_be_visible()
        await page.get_by_label("Status of a call").select_option("complete")
        await look_for_todays_calls_of_bob(page, "search_archive")
        await expect(rows).to_have_count(1)
        await expect(page.get_by_role("link", name="cite an old theatre")).to_be_visible()
        await looking.check("chats-filtered")
        await page.goto(url(service, "/chats?tool=nothing"))
        await expect(page.get_by_text("No chat fits")).to_be_visible()
        for query, count in (("tool=book_table", 1), ("until=2020-01-01", 0), ("agent=demo", 3), ("text=theatre", 1)):
            found = (await service.client.get(f"/inspect/chats?{query}")).text
            assert found.count('data-label="Began with">') == count, query
        assert (await service.client.get("/inspect/chats?status=odd")).status_code == 422
        assert (await service.client.get("/inspect/chats?since=nonsense")).status_code == 422


async def test_a_chat_is_deleted_after_confirmation(looking: Looking, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await play(service, "one", "fail")
        page = looking.page
        await page.goto(url(service, "/chat?id=one"))
        await page.get_by_text("Forget this chat").click()
        await page.get_by_role("button", name="Forget").click()
        # The browser holds the form back until its box is ticked.
        assert await page.locator("input:invalid").count() == 1
        await looking.check("forget")
        await page.get_by_label("I am sure").check()
        await page.get_by_role("button", name="Forget").click()
        await expect(page.get_by_text("Nothing is stored yet")).to_be_visible()
        missing = await service.client.get("/v1/chats/one/messages", params={"user_id": "ann"})
        assert missing.status_code == 404
        assert "book_table" not in (await service.client.get("/inspect/")).text


async def test_calls_are_found_by_text_tool_status_agent_user_and_time(looking: Looking, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await play(service, "one", "fail and slow")
        await play(service, "two", "fail", "bob")
        page = looking.page
        await page.goto(url(service, "/calls"))
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(3)
        await page.get_by_label("Status").select_option("error")
        await page.get_by_role("button", name="Search").click()
        await expect(rows).to_have_count(2)
        await page.get_by_label("Text in arguments or result").fill("FULLY booked")
        await look_for_todays_calls_of_bob(page, "book_table")
        await expect(rows).to_have_count(1)
        await expect(page.locator(".banner")).to_contain_text("bob")
        await looking.check("calls")
        for query, count in (("text=dawn", 1), ("tool=nothing", 0), ("until=2020-01-01", 0), ("agent=demo", 3)):
            found = (await service.client.get(f"/inspect/calls?{query}")).text
            assert found.count('<td data-label="Tool">') == count
        assert (await service.client.get("/inspect/calls?since=nonsense")).status_code == 422
        assert (await service.client.get("/inspect/calls?since=2026-99-99")).status_code == 422
        assert (await service.client.get("/inspect/calls?status=odd")).status_code == 422
        assert (await service.client.get("/inspect/calls?cursor=odd")).status_code == 422


async def test_repeated_search_keeps_its_times(looking: Looking, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        page = looking.page
        times = "since=2026-01-31T15%3A07&until=2026-02-03"
        await page.goto(url(service, f"/calls?{times}"))
        await page.get_by_role("button", name="Search").click()
        await page.wait_for_url(f"**/calls?text=&tool=&status=&agent=&user=&{times}")
        await looking.check("calls-of-a-time")


async def test_tools_are_listed_with_their_statistics(looking: Looking, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await write_long_chat(service.state.store, 1_000)
        page = looking.page
        await page.goto(url(service, "/tools"))
        await expect(page.locator("tbody tr")).to_have_count(7)
        await expect(page.get_by_role("heading", name="Slowest calls")).to_be_visible()
        await expect(page.locator("ol li").first).to_contain_text("999 ms")
        await looking.check("tools")
        await page.get_by_role("link", name="tool_1", exact=True).first.click()
        await expect(page.get_by_label("Tool")).to_have_value("tool_1")
        await expect(page.locator("tbody tr")).to_have_count(50)


@pytest.mark.slow
async def test_a_chat_of_ten_thousand_calls_stays_fast(looking: Looking, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await write_long_chat(service.state.store, CALLS_OF_A_SHORT_CHAT)
        pages = (
            "/chats",
            "/chat?id=long",
            "/run?id=run0&chat=long",
            "/call?id=call5&run=run0&chat=long",
            "/calls",
            "/calls?text=result+5",
            "/tools",
        )
        short = {path: await fastest(service, path) for path in pages}
        sizes = {path: len((await service.client.get(f"/inspect{path}")).content) for path in pages}
        await write_long_chat(service.state.store, CALLS_OF_A_LONG_CHAT, CALLS_OF_A_SHORT_CHAT)
        for path in pages:
            # A page does not grow with what is there, and what it takes stays far below what it would take to read all.
            assert len((await service.client.get(f"/inspect{path}")).content) < 1.5 * sizes[path]
            print(path, f"{short[path] * 1000:.0f} ms, {await fastest(service, path) * 1000:.0f} ms")
            assert await fastest(service, path) < 10 * short[path] + 0.5
        page = looking.page
        await page.goto(url(service, "/chat?id=long"))
        await page.get_by_role("link", name="Earlier turns").click()
        await expect(page.locator("article.turn")).to_have_count(25)
        await looking.check("chat-long")


async def fastest(service: Service, path: str) -> float:
    """The seconds that a page takes when nothing else is in the way."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        assert (await service.client.get(f"/inspect{path}")).status_code == 200
        taken.append(time.perf_counter() - began)
    return min(taken)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_list_fits_a_phone_in_both_colours(browser: Browser, tmp_path: Path, scheme: Any) -> None:
    async with serving(tmp_path, demo_agent(0)) as service, look(browser, PHONE, scheme) as looking:
        await play(service, "one", "fail, cite and slow")
        for name, path in {"chats": "/chats", "chat": "/chat?id=one", "calls": "/calls", "tools": "/tools"}.items():
            await looking.page.goto(url(service, path))
            await looking.check(f"phone-{scheme}-{name}")


async def test_data_of_other_users_is_hidden_from_a_user(looking: Looking, tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await play(service, "hers", "fail", "ann")
        for path in ("/chat?id=hers", "/run?id=r&chat=hers", "/call?id=call_0_0&run=r&chat=hers"):
            missing = await service.client.get(f"/inspect{path}&user=bob")
            assert missing.status_code == 404
            # Every way on is one of bob's pages.
            assert 'href="/inspect/?user=bob">Back' in missing.text
        for path in ("/chats", "/calls", "/tools"):
            assert "book_table" not in (await service.client.get(f"/inspect{path}?user=bob")).text
            assert "hers" not in (await service.client.get(f"/inspect{path}?user=bob")).text
