"""The inspector lists the approvals that wait, and answers them."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, expect
from structlog.testing import capture_logs

from callboard._inspect import now_pages
from callboard._named_keys import add_named_key
from callboard.calls.approval import APPROVED, APPROVED_IN_INSPECTOR, REFUSED_IN_INSPECTOR
from callboard.storage.values import GivenAnswer
from callboard_protocol import Done, ToolCallError, ToolStatus
from tests.http.test_signed_users import SECRET, signed
from tests.inspect.looking import PHONE, in_a_browser, look
from tests.waiting import ParkedRun, parked_run


@in_a_browser
async def test_an_approval_that_waits_is_listed_and_answered(browser: Browser, tmp_path: Path) -> None:
    async with parked_run(tmp_path) as parked, look(browser, PHONE) as looking:
        page = looking.page
        await page.goto(f"{parked.service.client.base_url}/inspect/")
        await expect(page.get_by_role("heading", name="Waiting for approval")).to_be_visible()
        await expect(page.get_by_role("row", name="refund")).to_contain_text("seat: 7")
        await looking.check("waiting-approvals-phone")
        await page.get_by_role("button", name="Allow").click()
        await expect(page.get_by_role("heading", name="Waiting for approval")).to_have_count(0)
        assert (await parked.read_rest())[-1] == Done()
        assert parked.paid == [7]


async def test_the_page_says_that_it_shows_the_newest_approvals_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(now_pages, "APPROVALS_SHOWN", 1)
    async with parked_run(tmp_path, seats=(7, 8)) as parked:
        page = (await parked.service.client.get("/inspect/")).text
    assert "These are the newest 1. Older calls are listed when these are answered." in page
    assert "seat: 8" in page
    assert "seat: 7" not in page


async def test_a_call_that_waits_has_a_state_of_its_own_in_lists_filters_and_its_run(tmp_path: Path) -> None:
    label = '<span class="state waiting">waiting for approval</span>'
    async with parked_run(tmp_path) as parked:
        client = parked.service.client
        for path in ("", "calls?status=waiting", "chats", "chat?id=chat", "run?id=run&chat=chat"):
            assert label in (await client.get(f"/inspect/{path}")).text, path
        assert "No call fits" in (await client.get("/inspect/calls?status=running")).text
        listed = [
            (await client.get(f"/v1/tool-calls?user_id=ann&status={one}")).json() for one in ("waiting", "running")
        ]
        assert [[call["status"] for call in page["tool_calls"]] for page in listed] == [["waiting"], []]
        await press(parked, "yes")
        await parked.read_rest()
        for path in ("", "chats", "chat?id=chat"):
            assert label not in (await client.get(f"/inspect/{path}")).text, path


async def test_the_run_of_an_answer_that_waited_shows_all_its_calls_at_once(tmp_path: Path) -> None:
    async with parked_run(tmp_path, seats=(7, 8)) as parked:
        client = parked.service.client
        waiting = (await client.get("/v1/approvals?user_id=ann")).json()["approvals"]
        for seat, approval in enumerate(waiting, 1):
            answer = {"request_id": approval["request_id"], "value": True}
            assert (await client.post("/v1/runs/run/input?user_id=ann", json=answer)).is_success
            events = await parked.read_rest()
            assert len(parked.paid) == seat
        assert events[-1] == Done()
        page = (await client.get("/inspect/run?id=run&chat=chat")).text
    assert "What the model was sent" in page
    assert [seat for seat in (7, 8) if f'<span class="note">seat: {seat}</span>' in page] == [7, 8]


async def test_a_page_about_a_user_neither_lists_nor_answers_approvals_of_others(tmp_path: Path) -> None:
    async with parked_run(tmp_path) as parked:
        client = parked.service.client
        assert "Waiting for approval" not in (await client.get("/inspect/?user=bob")).text
        assert "Waiting for approval" in (await client.get("/inspect/?user=ann")).text
        assert (await press(parked, "yes", user="bob")).status_code == 404
        assert parked.paid == []


async def test_if_open_webui_signs_only_the_user_answers_an_approval(tmp_path: Path) -> None:
    async with parked_run(tmp_path, headers=signed(), open_webui_jwt_secret=SECRET) as parked:
        page = (await parked.service.client.get("/inspect/")).text
        assert "seat: 7" in page
        assert "Only the user can answer, because Open WebUI signs for its users." in page
        assert "/approve" not in page
        for value in ("yes", "no"):
            refused = await press(parked, value)
            assert refused.status_code == 401
            assert "only the user can do this, because Open WebUI signs for its users" in refused.text
        assert parked.paid == []
        answer = {"request_id": await find_question(parked), "value": True}
        assert (await parked.service.client.post("/v1/runs/run/input?user_id=ann", json=answer)).status_code == 202
        await parked.read_rest()
        assert parked.paid == [7]


@pytest.mark.parametrize("value", ["yes", "no"])
@pytest.mark.parametrize("has_key", [True, False])
async def test_an_answer_of_the_inspector_is_recorded_as_the_inspectors(
    tmp_path: Path, value: str, *, has_key: bool
) -> None:
    name = "k" * 64 if has_key else None
    file = tmp_path / "keys" / "api_keys"
    headers = {"Authorization": f"Bearer {add_named_key(file, name)}"} if name else {}
    settings: dict[str, Any] = {"api_keys_file": file} if name else {}
    with capture_logs() as lines:
        async with parked_run(tmp_path, headers=headers, **settings) as parked:
            question = await find_question(parked)
            assert (await press(parked, value)).status_code == 303
            store = parked.service.state.store
            by = f"inspector: {name}" if name else "inspector"
            given = (await store.stored_runs("reader").signals(["run"]))["run"].answers[question]
            assert given == GivenAnswer(value == "yes", by, in_inspector=True)
            events = await parked.read_rest()
    decisions = [(line["key"], line["decision"], line["decided_by"]) for line in lines if line["event"] == "decision"]
    assert decisions == [(name, "allowed" if value == "yes" else "denied", by)]
    if value == "yes":
        messages = {event.data.message for event in events if isinstance(event, ToolStatus)}
        assert APPROVED_IN_INSPECTOR in messages
        assert APPROVED not in messages
    else:
        [error] = [event.error for event in events if isinstance(event, ToolCallError)]
        assert error == REFUSED_IN_INSPECTOR


async def find_question(parked: ParkedRun) -> str:
    [waiting] = (await parked.service.client.get("/v1/approvals?user_id=ann")).json()["approvals"]
    return str(waiting["request_id"])


async def press(parked: ParkedRun, value: str, **query: str) -> httpx.Response:
    """Press Allow ("yes") or Deny ("no"), also if the page does not show the button."""
    client = parked.service.client
    page = (await client.get("/inspect/", params=query)).text
    [token] = set(re.findall('name="token" value="([^"]+)"', page))
    query |= {"run": "run", "of": "ann", "question": await find_question(parked), "value": value}
    return await client.post("/inspect/approve", params=query, data={"token": token})
