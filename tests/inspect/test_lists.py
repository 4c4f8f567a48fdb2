"""What is stored, as a person looks through it: chats, calls; and Forget."""

import re
import time
from html import unescape
from pathlib import Path

from playwright.async_api import expect

from callboard._history import HistoryCall, Turn
from callboard.storage import Store
from examples.demo import demo_agent
from tests.inspect.looking import Looking, in_a_browser
from tests.serving import Service, request, serving
from tests.storage.turns import StoredSteps

CALLS_OF_A_TURN = 10
CALLS_OF_A_LONG_CHAT = 900
CALLS_OF_A_SHORT_CHAT = 300
"""So many that every list has a second page."""


def url(service: Service, path: str) -> str:
    return f"{service.client.base_url}/inspect{path}"


async def play(service: Service, chat_id: str, say: str, user_id: str = "ann", name: str = "") -> None:
    messages = [{"role": "user", "content": say}]
    user = {"id": user_id, "name": name, "email": f"{user_id}@example.org"}
    body = request(agent="demo", chat_id=chat_id, message_id=f"m-{chat_id}", messages=messages, user=user)
    await service.events(body)


async def write_long_chat(store: Store, count: int, begin: int = 0) -> None:
    """A chat of so many calls, in turns of ten; `begin` are there already."""
    for first in range(begin, count, CALLS_OF_A_TURN):
        turn = Turn("long", f"run{first}", f"m{first}", "ann", f"Question {first}", agent_id="demo")
        journal = StoredSteps(store, turn)
        await journal.begin()
        for number in range(first, first + CALLS_OF_A_TURN):
            call_id = f"call{number}"
            await journal.call_started(HistoryCall(call_id, f"tool_{number % 7}", f'{{"n": {number}}}', number), "")
            code = "tool_failed" if number % 50 == 0 else None
            await journal.call_ended(call_id, f"result {number} " + "x" * 500, code, number % 1000)
        await journal.finish("So it is.", is_answered=True)


TODAY = time.strftime("%Y-%m-%d", time.gmtime())
FOUND = [
    ("chats?", 3),
    ("chats?text=theatres", 1),
    ("chats?user=bob", 2),
    ("chats?user=Bob+Marley", 2),
    ("calls?user=Ann@Example.org", 2),
    ("chats?user=bob+marley&text=theatres", 1),
    ("calls?", 4),
    ("calls?text=FULLY+booked", 1),
    ("calls?until=2020-01-01", 0),
    (f"calls?status=complete&tool=generate_image&agent=demo&user=bob&since={TODAY}", 1),
]


async def test_chats_and_calls_are_found_by_each_field_of_their_forms(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await play(service, "one", "fail and slow")
        await play(service, "two", "cite an old theatre", "bob", "Bob Marley")
        await play(service, "three", "slow", "bob", "Bob Marley")
        for query, count in FOUND:
            page = (await service.client.get(f"/inspect/{query}")).text
            assert page.count('data-label="Began with">') + page.count('<td data-label="Tool">') == count, query
        for path in ("calls?status=odd", "calls?since=nonsense", "calls?since=2026-99-99", "calls?cursor=odd"):
            assert (await service.client.get(f"/inspect/{path}")).status_code == 422
        assert (await service.client.get("/inspect/chats?cursor=odd")).status_code == 422
        await play(service, "four", "slow", "robert", "Bob Marley")
        refused = await service.client.get("/inspect/chats?user=Bob+Marley")
    assert refused.status_code == 422
    assert "several users are named" in refused.text


async def test_failures_of_yesterday_are_one_click_away(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        await play(service, "one", "fail")
        for path in ("", "calls"):
            page = (await service.client.get(f"/inspect/{path}")).text
            links = dict(re.findall(r'href="[^"]*(calls[^"]*)">(failed [a-z]+)<', page))
            found = {
                name: (await service.client.get(f"/inspect/{unescape(link)}")).text for link, name in links.items()
            }
            assert "book_table" in found["failed today"]
            assert "No call fits" in found["failed yesterday"]


@in_a_browser
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


async def test_no_page_grows_with_the_calls_of_a_chat(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:

        async def sizes() -> list[int]:
            paths = ("chats", "chat?id=long", "run?id=run0&chat=long", "calls", "calls?text=result+1")
            return [len((await service.client.get(f"/inspect/{path}")).content) for path in paths]

        await write_long_chat(service.state.store, CALLS_OF_A_SHORT_CHAT)
        short = await sizes()
        await write_long_chat(service.state.store, CALLS_OF_A_LONG_CHAT, CALLS_OF_A_SHORT_CHAT)
        assert all(long < 1.5 * before for long, before in zip(await sizes(), short, strict=True))
        page = (await service.client.get("/inspect/chat?id=long")).text
        [earlier] = re.findall(r'href="([^"]*)"[^>]*>Earlier turns', page)
        assert (await service.client.get(unescape(earlier))).text.count('<article class="card turn">') == 25
