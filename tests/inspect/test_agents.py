"""Agents as a person sees them, and the small chat to try one in."""

from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, expect

from callboard import Agent, Skill, tool
from callboard.calls import ToolContext
from callboard.calls.approval import APPROVED, APPROVED_IN_INSPECTOR, REFUSED_IN_INSPECTOR, UNCLEAR
from callboard.runs import Grants
from callboard.skills.skill import SkillState
from callboard.storage import ToolCallFilter
from callboard.testing import Call, FakeModel
from callboard_protocol import InputRequest
from examples.demo import demo_agent
from tests.inspect.looking import PHONE, Looking, in_a_browser, look
from tests.inspect.test_first_page import read
from tests.serving import ScriptedAgent, Service, numbered, request, serving


def url(service: Service, path: str) -> str:
    return f"{service.client.base_url}/inspect{path}"


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


@pytest.mark.parametrize("scripts", [True, False])
@in_a_browser
async def test_an_agent_is_tried_with_cards_and_approvals(browser: Browser, tmp_path: Path, *, scripts: bool) -> None:
    model = FakeModel([Call("sell", seats=2)], "Sold.", [Call("sell", seats=3)], "Not sold.")
    clerk = Agent("clerk", "Sells.", (SELLING,), name="Clerk", model=model)
    async with serving(tmp_path, clerk) as service, look(browser, scripts=scripts) as looking:
        page = looking.page
        await page.goto(url(service, "/try?agent=clerk"))
        await page.get_by_label("Message").fill("Two seats, please")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("button", name="Allow")).to_be_visible()
        await expect(page.get_by_role("form", name="Question")).to_contain_text("seats: 2")
        if scripts:
            await looking.check("try-question")
        await page.get_by_role("button", name="Allow").click()
        await expect(page.locator(".said")).to_have_text("Sold.")
        await expect(page.locator("details.card .state")).to_have_text("done")
        await page.get_by_label("Message").fill("Three more")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("button", name="Refuse").click()
        await expect(page.locator(".said").last).to_have_text("Not sold.")
        await expect(page.locator("details.card .state").last).to_have_text("declined")
        await expect(page.locator("details.card").last).to_contain_text("Declined: it was not run.")
        if scripts:
            await page.locator("details.card summary").first.click()
            await looking.check("try")
        # The model was told of the first turn, with its call and the call's result.
        roles = [message["role"] for message in model.requests[2].messages]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


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


async def test_try_it_is_refused_for_users_that_need_a_signature(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0), open_webui_jwt_secret="x" * 32) as service:
        page = (await service.client.get("/inspect/try?agent=demo&user=ann")).text
        assert "users need a signature of Open WebUI" in page
        token = (
            (await service.client.get("/inspect/try?agent=demo")).text.split('name="token" value="')[1].split('"')[0]
        )
        form = {"token": token, "agent": "demo", "message": "fail"}
        assert (await service.client.post("/inspect/try/send?user=ann", data=form)).status_code == 401
        assert (await service.client.post("/inspect/try/send", data=form)).status_code == 303


@in_a_browser
async def test_restricted_agent_is_tried_with_the_given_role_and_groups(looking: Looking, tmp_path: Path) -> None:
    model = FakeModel([Call("sell", seats=2)], "Sold.", "Good bye.")
    clerk = Agent("clerk", "Sells.", (SELLING,), model=model)
    access = "clerk=group:Box office"
    async with serving(tmp_path, clerk, agent_access=access) as service:
        try_it = Trying(service, "ann")
        page = looking.page
        await page.goto(url(service, "/try?agent=clerk"))
        await expect(page.locator("#content")).to_contain_text("name a user")
        await looking.check("try-for-some")
        await page.goto(url(service, "/try?agent=clerk&user=ann"))
        await expect(page.get_by_label("Groups of the user")).to_be_visible()
        await looking.check("try-as-user")
        assert (await try_it.post("send", message="Two seats", groups="Ushers")).status_code == 403
        sent = await try_it.post("send", message="Two seats", role="admin", groups="Ushers, Box office")
        assert sent.status_code == 303
        # The next turn, and the page after a question, are the same user's in the same groups.
        shown = await try_it.follow(sent)
        while 'name="question"' not in shown:
            shown = await try_it.follow(sent)
        assert 'name="groups" maxlength="4000" value="Ushers, Box office"' in shown
        assert 'name="role" maxlength="255" placeholder="user" value="admin"' in shown
        question = {name: read_field(shown, name) for name in ("chat", "run", "question", "kind", "role", "groups")}
        answered = await try_it.post("answer", value="yes", **question)
        shown = await try_it.follow(answered)
        while "Sold." not in shown:
            shown = await try_it.follow(answered)
        again = await try_it.post(
            "send",
            message="Bye",
            chat=question["chat"],
            role=read_field(shown, "role"),
            groups=read_field(shown, "groups"),
        )
        assert again.status_code == 303


@in_a_browser
async def test_form_of_a_question_is_filled_in(looking: Looking, tmp_path: Path) -> None:
    schema = {
        "properties": {"row": {"type": "string", "enum": ["stalls", "balcony"]}, "seats": {"type": "integer"}},
        "required": ["row"],
    }

    @tool
    async def reserve(context: ToolContext) -> str:
        """Reserves."""
        return repr(await context.ask("Which seats?", schema=schema))

    model = FakeModel([Call("reserve")], "Done.")
    clerk = Agent("clerk", "Sells.", (Skill("hall", "Reserves.", tools=(reserve,)),), model=model)
    async with serving(tmp_path, clerk) as service:
        page = looking.page
        await page.goto(url(service, "/try?agent=clerk"))
        await page.get_by_label("Message").fill("Reserve")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_label("row (required)").fill("2")
        await page.get_by_label("seats").fill("3")
        await looking.check("try-form")
        await page.get_by_role("button", name="Answer").click()
        await expect(page.locator("#content")).to_contain_text("{'row': 'balcony', 'seats': 3}")


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        ("yes", "confirmation", APPROVED_IN_INSPECTOR),
        ("no", "confirmation", REFUSED_IN_INSPECTOR),
        # Only the user can allow a tool always. No button sends these forms.
        ("always", "confirmation", REFUSED_IN_INSPECTOR),
        ("always", "", UNCLEAR),
    ],
)
async def test_an_answer_in_try_it_is_the_inspectors_and_allows_nothing_always(
    tmp_path: Path, value: str, kind: str, told: str
) -> None:
    clerk = Agent("clerk", "Sells.", (SELLING,), model=FakeModel([Call("sell", seats=2)], "I see."))
    async with serving(tmp_path, clerk) as service:
        try_it = Trying(service, "ann")
        await try_it.post("send", message="Two seats")
        [run] = service.state.runs
        chat_id = str(run.identity.chat_id)
        async with service.client.stream("GET", f"/v1/runs/{run.run_id}/events?user_id=ann") as response:
            questions = (event.request_id async for _, event in numbered(response) if isinstance(event, InputRequest))
            # The user's own answer does not fit, so the question is asked again.
            unfit = {"request_id": await anext(questions), "value": {"arguments": {"seats": "many"}}}
            await service.client.post(f"/v1/runs/{run.run_id}/input?user_id=ann", json=unfit)
            form = {"chat": chat_id, "run": run.run_id, "question": await anext(questions)}
            await try_it.post("answer", value=value, kind=kind, **form)
            await run.wait()
        store = service.state.store
        [call] = (await store.chats("ann").tool_calls(ToolCallFilter(chat_id), 1)).tool_calls
        assert told in [*(step.message for step in call.events), (call.result or "").removeprefix("Error: ")]
        assert APPROVED not in [step.message for step in call.events]
        assert await Grants(store, "ann", chat_id).list() == []


class Trying:
    """Somebody at the pages of *Try it* who sees a user's chats."""

    def __init__(self, service: Service, user: str) -> None:
        self._client = service.client
        self._user = user

    async def post(self, step: str, **form: str) -> httpx.Response:
        page = (await self._client.get(f"/inspect/try?agent=clerk&user={self._user}")).text
        sent = {"agent": "clerk", **form, "token": read_field(page, "token")}
        return await self._client.post(f"/inspect/try/{step}?user={self._user}", data=sent)

    async def follow(self, response: httpx.Response) -> str:
        return (await self._client.get(response.headers["location"])).text


def read_field(page: str, name: str) -> str:
    """The value of a form's field."""
    return unescape(page.split(f'name="{name}"')[1].split('value="')[1].split('"')[0])


async def test_try_it_continues_only_its_own_chats(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        page = await service.client.get("/inspect/try?agent=demo")
        token = page.text.split('name="token" value="')[1].split('"')[0]
        body = {"token": token, "agent": "demo", "chat": "somebodys", "message": "hi"}
        assert (await service.client.post("/inspect/try/send", data=body)).status_code == 422
        assert (await service.client.get("/inspect/try?agent=demo&chat=somebodys")).status_code == 422
        assert (
            await service.client.post("/inspect/try/send", data={**body, "chat": "", "message": " "})
        ).status_code == 422
        assert (await service.client.get("/inspect/try?agent=nobody")).status_code == 404


@pytest.mark.parametrize("scheme", ["light", "dark"])
@in_a_browser
async def test_try_it_fits_a_phone_in_both_colours(browser: Browser, tmp_path: Path, scheme: Any) -> None:
    async with serving(tmp_path, demo_agent(0)) as service, look(browser, PHONE, scheme) as looking:
        page = looking.page
        await page.goto(url(service, "/try?agent=demo"))
        await looking.check(f"phone-{scheme}-try")
        await page.get_by_label("Message").fill("approve")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("button", name="Refuse").wait_for()
        await looking.check(f"phone-{scheme}-try-question")


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


async def test_tool_that_is_always_allowed_is_listed_in_its_chat_and_revoked(tmp_path: Path) -> None:
    model = FakeModel([Call("sell", seats=2)], "Sold.")
    async with serving(tmp_path, Agent("clerk", "Sells.", (SELLING,), model=model)) as service:
        body = request(agent="clerk", chat_id="c", run_id="r", user={"id": "ann"})
        await service.events_with_answer(body, "always")
        page = (await service.client.get("/inspect/chat?id=c")).text
        assert "Allowed always in this chat" in page
        form = {"token": read_field(page, "token"), "chat": "c", "agent": "clerk", "tool": "sell"}
        assert (await service.client.post("/inspect/revoke", data=form)).status_code == 303
        assert "Allowed always in this chat" not in await read(service, "chat?id=c")
