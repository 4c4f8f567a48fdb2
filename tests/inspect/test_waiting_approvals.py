"""The inspector lists the approvals that wait, and answers them."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from callboard._inspect import now_pages
from callboard_protocol import Done, ToolCallComplete, ToolCallError
from tests.inspect.looking import PHONE, Looking, look
from tests.parking import parked_run

pytestmark = [pytest.mark.needs("browser"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(("button", "paid"), [("Allow", [7]), ("Deny", [])])
async def test_an_approval_that_waits_is_listed_and_answered(
    looking: Looking, tmp_path: Path, button: str, paid: list[int]
) -> None:
    async with parked_run(tmp_path) as parked:
        page = looking.page
        await page.goto(f"{parked.service.client.base_url}/inspect/")
        await expect(page.get_by_role("heading", name="Waiting for approval")).to_be_visible()
        await expect(page.get_by_role("row", name="refund")).to_contain_text('{"seat": 7}')
        await looking.check("waiting-approvals")
        await page.get_by_role("button", name=button).click()
        await expect(page.get_by_role("heading", name="Waiting for approval")).to_have_count(0)
        events = await parked.read_rest()
        assert events[-1] == Done()
        assert parked.paid == paid
        assert any(isinstance(event, ToolCallComplete if paid else ToolCallError) for event in events)


async def test_the_approvals_fit_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    async with parked_run(tmp_path) as parked, look(browser, PHONE) as looking:
        await looking.page.goto(f"{parked.service.client.base_url}/inspect/")
        await looking.check("waiting-approvals-phone")


async def test_the_page_says_that_it_shows_the_newest_approvals_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(now_pages, "APPROVALS_SHOWN", 1)
    async with parked_run(tmp_path, seats=(7, 8)) as parked:
        page = (await parked.service.client.get("/inspect/")).text
    assert "These are the newest 1. Older calls are listed when these are answered." in page
    assert "{&#34;seat&#34;: 8}" in page
    assert "{&#34;seat&#34;: 7}" not in page


async def test_a_page_about_a_user_neither_lists_nor_answers_approvals_of_others(tmp_path: Path) -> None:
    async with parked_run(tmp_path) as parked:
        client = parked.service.client
        assert "Waiting for approval" not in (await client.get("/inspect/?user=bob")).text
        assert "Waiting for approval" in (await client.get("/inspect/?user=ann")).text
        [waiting] = (await client.get("/v1/approvals?user_id=ann")).json()["approvals"]
        page = (await client.get("/inspect/?user=bob")).text
        [token] = set(re.findall('name="token" value="([^"]+)"', page))
        query = {"user": "bob", "run": "run", "of": "ann", "question": waiting["request_id"], "value": "yes"}
        refused = await client.post("/inspect/approve", params=query, data={"token": token})
        assert refused.status_code == 404
        assert parked.paid == []
