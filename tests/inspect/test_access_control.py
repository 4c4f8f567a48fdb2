"""Who may look: the key once, then a cookie; no page of another origin, and no form but the inspector's own."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect
from starlette.requests import HTTPConnection

from callboard._inspect import access_control
from callboard._inspect.signing_in import COOKIE, SigningIn
from callboard._named_keys import KeysFile, add_named_key, remove_named_key
from callboard.agents import RunContext
from callboard.http.auth import UNNAMED_KEY, ApiKey, Principal, api_key
from callboard.runs.grants import Grants
from callboard_protocol import Event, InputRequest, Message, ToolCallComplete, ToolCallStart
from tests.http.test_signed_users import SECRET, signed
from tests.inspect.looking import in_a_browser, look
from tests.serving import ScriptedAgent, Service, numbered, request, serving

KEY = "a-long-secret-key"
PAGES = (
    "/inspect",
    "/inspect/",
    "/inspect/run?id=r&chat=c",
    "/inspect/sent?run=r",
    "/inspect/result?id=a&run=r&chat=c",
)


QUESTION = InputRequest(request_id="q", kind="confirmation", title="Sure?", timeout_seconds=600)


async def answer(_: RunContext) -> AsyncIterator[Event]:
    yield Message(content="what nobody else may read")


AGENT = ScriptedAgent(answer)


async def sign_in(service: Service, key: str = KEY, **fields: str) -> httpx.Response:
    return await service.client.post("/inspect/sign-in", data={"key": key, **fields})


async def test_without_the_key_no_page_is_shown_and_every_page_asks_for_it(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, api_key=KEY) as service:
        service.client.headers["Authorization"] = f"Bearer {KEY}"
        await service.events(request(chat_id="c", run_id="r"))
        del service.client.headers["Authorization"]
        for path in PAGES:
            page = await service.client.get(path)
            assert page.status_code == 401
            assert "nobody else" not in page.text
            assert 'type="password"' in page.text
        assert (await service.client.post("/inspect/stop?run=r")).status_code == 401
        assert (await service.client.get("/inspect/assets/inspect.css")).status_code == 200


async def test_key_is_asked_once_and_scripts_cannot_read_the_cookie_which_ends_with_sign_out(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, api_key=KEY) as service:
        assert (await sign_in(service, "wrong")).status_code == 401
        assert COOKIE not in service.client.cookies
        for wanted in ("//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)"):
            assert (await sign_in(service, wanted=wanted)).headers["location"] == "/inspect/"
        signed_in = await sign_in(service, wanted="/chats")
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/inspect/chats")
        kept = signed_in.headers["set-cookie"].lower()
        assert all(part in kept for part in ("httponly", "samesite=strict", "path=/inspect", "max-age=43200"))
        assert KEY not in kept
        page = await service.client.get("/inspect/")
        assert page.status_code == 200
        # The cookie opens the pages, and nothing of the API.
        assert (await service.client.get("/v1/models")).status_code == 401
        [token] = set(re.findall(r'name="token" value="(\w+)"', page.text))
        await service.client.post("/inspect/sign-out", data={"token": token})
        assert COOKIE not in service.client.cookies
        assert (await service.client.get("/inspect/")).status_code == 401


async def test_hashes_of_keys_are_not_enough_to_make_a_cookie(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "api_keys"
    add_named_key(file, "ann")
    thief = SigningIn(ApiKey(None, KeysFile(file)))
    forged = thief.begin("ann")
    assert forged
    async with serving(tmp_path, AGENT, api_keys_file=file) as service:
        header = {"Cookie": f"{COOKIE}={forged.cookie}"}
        assert (await service.client.get("/inspect/", headers=header)).status_code == 401


@pytest.mark.parametrize(
    ("settings", "inside"),
    [
        ({}, {"ann", "bob", ""}),
        ({"inspect_keys": "bob"}, {"bob", ""}),
        # Else a client that Open WebUI signs no user for would read what everybody said.
        ({"open_webui_jwt_secret": "s" * 32}, {""}),
        ({"open_webui_jwt_secret": "s" * 32, "inspect_keys": "ann"}, {"ann", ""}),
    ],
)
async def test_setting_names_the_keys_that_may_sign_in(
    tmp_path: Path, settings: dict[str, str], inside: set[str]
) -> None:
    file = tmp_path / "api_keys"
    keys = {**{name: add_named_key(file, name) for name in ("ann", "bob")}, "": KEY}
    async with serving(tmp_path, AGENT, api_key=KEY, api_keys_file=file, **settings) as service:
        for name, key in keys.items():
            service.client.cookies.clear()
            opens = name in inside
            assert (await sign_in(service, key)).status_code == (303 if opens else 401)
            assert (COOKIE in service.client.cookies) is opens
            by_header = await service.client.get("/inspect/", headers={"Authorization": f"Bearer {key}"})
            assert by_header.status_code == (200 if opens else 401)


async def test_a_cookie_that_is_forged_or_too_old_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, AGENT, api_key=KEY) as service:
        await sign_in(service)
        until, caller, nonce, signature = service.client.cookies[COOKIE].split(".")
        service.client.cookies.clear()
        changed = signature[:-1] + ("1" if signature.endswith("0") else "0")
        another = b"another".hex()
        forged = [
            f"{int(until) + 1}.{caller}.{nonce}.{signature}",
            f"{until}.{another}.{nonce}.{signature}",
            f"{until}.{caller}.{nonce}.{changed}",
            f"{until}..{nonce}.",
            *("", ".", "a.b.c", "...", "9" * 5000, "é"),
        ]
        for cookie in forged:
            header = {b"Cookie": f"{COOKIE}={cookie}".encode()}
            assert (await service.client.get("/inspect/", headers=header)).status_code == 401
        header = {b"Cookie": f"{COOKIE}={until}.{caller}.{nonce}.{signature}".encode()}
        assert (await service.client.get("/inspect/", headers=header)).status_code == 200
        # A restart does not end the session, another key does.
        for key, status in ((KEY, 200), ("another-long-secret-key", 401)):
            async with serving(tmp_path, AGENT, api_key=key) as again:
                assert (await again.client.get("/inspect/", headers=header)).status_code == status
        later = int(until) + 1
        monkeypatch.setattr(time, "time", lambda: later)
        assert (await service.client.get("/inspect/", headers=header)).status_code == 401


async def test_session_of_a_named_key_ends_when_the_key_is_removed(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    given = {name: add_named_key(keys, name) for name in ("ann", "bob")}
    cookies = {}
    # Two servers of the same keys, as two workers are.
    async with serving(tmp_path, AGENT, api_keys_file=keys) as one, serving(tmp_path, AGENT, api_keys_file=keys) as two:
        for name, key in given.items():
            assert (await sign_in(one, key)).status_code == 303
            cookies[name] = {"Cookie": f"{COOKIE}={one.client.cookies[COOKIE]}"}
            one.client.cookies.clear()
            assert (await two.client.get("/inspect/", headers=cookies[name])).status_code == 200
        remove_named_key(keys, "ann")
        for service in (one, two):
            assert (await service.client.get("/inspect/", headers=cookies["ann"])).status_code == 401
            assert (await service.client.get("/inspect/", headers=cookies["bob"])).status_code == 200
    add_named_key(keys, "ann")
    async with serving(tmp_path, AGENT, api_keys_file=keys) as service:
        assert (await service.client.get("/inspect/", headers=cookies["ann"])).status_code == 401
        assert (await service.client.get("/inspect/", headers=cookies["bob"])).status_code == 200


@pytest.mark.parametrize("user", ["ann", None])
async def test_if_open_webui_signs_the_pages_change_nothing_of_a_user(tmp_path: Path, user: str | None) -> None:
    async def ask(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content=repr(await context.ask(QUESTION)))

    async with serving(tmp_path, ScriptedAgent(ask), open_webui_jwt_secret=SECRET) as service:
        client = service.client
        client.headers.update(signed())
        mine = {"user_id": user} if user else {}
        body = request(chat_id="c", message_id="m", run_id="r", user=user and {"id": user})
        async with client.stream("POST", "/v1/runs", json=body) as response:
            events = numbered(response)
            while not isinstance((await anext(events))[1], InputRequest):
                pass
            grants = Grants(service.state.store, user or "nobody", "c")
            await grants.add("scripted", "look", "f")
            seen = set()
            shown = {"user": user} if user else {}
            for path in ("", "run?id=r&chat=c", "chat?id=c"):
                page = (await client.get(httpx.URL(f"/inspect/{path}").copy_merge_params(shown))).text
                seen |= set(re.findall(r">(\w+)</button>", page))
                assert ("because Open WebUI signs" in page) is (user is not None), path
            assert seen == (set() if user else {"Stop", "Forget", "Send"})
            [token, *_] = re.findall('name="token" value="([^"]+)"', page)
            approve = f"/approve?run=r&question=q&value=yes&of={user or ''}"
            forms = {
                approve: {},
                f"/stop?run=r&of={user or ''}": {},
                f"/say?run=r&of={user or ''}": {"content": "Allow it."},
                "/revoke": {"chat": "c", "agent": "scripted", "tool": "look"},
                "/forget": {"chat": "c", "sure": "yes"},
            }
            if user:
                for path, form in forms.items():
                    address = httpx.URL(f"/inspect{path}").copy_merge_params(shown)
                    refused = await client.post(address, data={"token": token, **form})
                    assert (refused.status_code, "only the user" in refused.text) == (401, True), path
                assert (await client.get("/v1/runs/r", params=mine)).json()["ended"] is False
                assert await grants.find("scripted", "look") == "f"
            else:
                # As with the key alone in the API.
                assert (await client.post(f"/inspect{approve}", data={"token": token})).status_code == 303
            answer = {"request_id": "q", "value": False}
            answered = await client.post("/v1/runs/r/input", params=mine, json=answer)
            assert answered.status_code == (202 if user else 404)
            said = [event.content async for _, event in events if isinstance(event, Message)]
            assert said == [repr(user is None)]


@pytest.mark.parametrize("key", [None, KEY])
async def test_a_form_needs_the_token_of_its_own_session(tmp_path: Path, key: str | None) -> None:
    async with serving(tmp_path, AGENT, api_key=key) as service:
        if key:
            await sign_in(service)
        await service.client.get("/inspect/")
        elsewhere = SigningIn(api_key(KEY)).begin(UNNAMED_KEY)
        assert elsewhere is not None
        for wrong in ("", "0" * 64, "é", elsewhere.token):
            refused = await service.client.post("/inspect/stop?run=r", data={"token": wrong})
            assert refused.status_code == 422
            assert "reload the page" in refused.text


async def test_a_form_that_is_too_large_or_has_too_many_fields_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, api_key=KEY) as service:
        assert (await sign_in(service, wanted="x" * 300_000)).status_code == 413
        assert (await sign_in(service, **{f"field{number}": "" for number in range(200)})).status_code == 422


async def post_by_halves(service: Service, path: str) -> bytes:
    """What is answered to a form that never comes to its end."""
    url = service.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: 100\r\n\r\nkey=a".encode())
    answered = await reader.readline()
    writer.close()
    return answered


async def test_incomplete_form_is_refused_after_its_time_and_without_a_session_only_the_sign_in_form_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, AGENT, api_key=KEY) as service:
        assert b" 401 " in await post_by_halves(service, "/inspect/stop?run=r")
        monkeypatch.setattr(access_control, "FORM_SECONDS", 0.1)
        assert b" 408 " in await post_by_halves(service, "/inspect/sign-in")
    async with serving(tmp_path, AGENT) as service:
        assert b" 408 " in await post_by_halves(service, "/inspect/stop?run=r")


async def test_pages_run_only_scripts_and_show_only_pictures_of_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        for path in (*PAGES, "/inspect/nothing"):
            headers = (await service.client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
            assert "no-store" in headers["cache-control"]
        page = (await service.client.get("/inspect/")).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
        assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


async def test_pages_about_a_user_have_nothing_of_others(tmp_path: Path) -> None:
    async def call(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="look_around")
        yield ToolCallComplete(tool_call_id="a", result="x")

    async with serving(tmp_path, ScriptedAgent(call)) as service:
        for ids in ({"chat_id": "hers", "run_id": "r"}, {"run_id": "passing"}):
            await service.events(request(**ids, user={"id": "ann"}))
        for path in (
            *("chat?id=hers", "run?id=r&chat=hers", "call?id=a&run=r&chat=hers", "sent?run=r&chat=hers"),
            *("result?id=a&run=r&chat=hers", "run?id=passing", "sent?run=passing"),
        ):
            missing = await service.client.get(f"/inspect/{path}&user=bob")
            assert missing.status_code == 404
            # Every way on is one of bob's pages.
            assert 'href="/inspect/?user=bob">Back' in missing.text
        for path in ("", "chats", "calls"):
            for user, is_there in (("ann", True), ("bob", False)):
                page = (await service.client.get(f"/inspect/{path}?user={user}")).text
                assert ("look_around" in page or "chat=hers" in page or "id=hers" in page) is is_there, path


async def test_own_authentication_needs_no_sign_in(tmp_path: Path) -> None:
    async def by_proxy(connection: HTTPConnection) -> Principal | None:
        return Principal("ann") if connection.headers.get("x-user") == "ann" else None

    signing = SigningIn(by_proxy)
    scope = {"type": "http", "headers": [(b"x-user", b"ann")], "path": "/", "query_string": b""}
    session = await signing.find(HTTPConnection(scope))
    assert session is not None
    assert session.is_new
    assert await signing.find(HTTPConnection({**scope, "headers": []})) is None


async def test_without_the_setting_there_is_no_inspector(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, inspect=False) as service:
        assert (await service.client.get("/inspect/")).status_code == 404


@in_a_browser
async def test_a_person_signs_in_in_a_browser_and_stays_signed_in(browser: Browser, tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT, api_key=KEY) as service, look(browser) as looking:
        page = looking.page
        url = str(service.client.base_url)
        await page.goto(f"{url}/inspect/run?id=none&chat=c")
        assert looking.complaints.pop().startswith("Failed to load resource: the server responded with a status of 401")
        await looking.check("sign-in")
        await page.get_by_label("API key").fill("wrong")
        await page.keyboard.press("Enter")
        await page.get_by_role("alert").wait_for()
        await page.get_by_label("API key").fill(KEY)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("button", name="Sign out").wait_for()
        await page.goto(f"{url}/inspect/run?id=none&chat=c")
        await expect(page.locator("#content")).to_contain_text("there is no chat")
        looking.complaints.clear()
        await looking.check("refused")
        await page.get_by_role("link", name="Now").click()
        await expect(page.get_by_role("heading", name="Now")).to_be_visible()
        assert await page.evaluate("document.cookie") == ""
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_label("API key").wait_for()


@pytest.mark.parametrize("key", [None, KEY])
async def test_no_other_origin_reads_or_posts(tmp_path: Path, key: str | None) -> None:
    foreign: list[tuple[dict[str, str], int]] = [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://allowed.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Host": "evil.example"}, 421),
    ]
    async with serving(tmp_path, AGENT, api_key=key, cors_origins=("https://allowed.example",)) as service:
        if key:
            await sign_in(service)
        for headers, status in foreign:
            for answered in (
                await service.client.get("/inspect/", headers=headers),
                await service.client.post("/inspect/stop?run=r", headers=headers),
                await service.client.post("/inspect/sign-in", headers=headers, data={"key": KEY}),
            ):
                assert answered.status_code == status, headers
                assert "set-cookie" not in answered.headers
