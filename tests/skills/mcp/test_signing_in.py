"""Tokens for MCP servers over HTTP: those of users, who sign in, and Callboard's own."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest
from mcp.server.auth.provider import AccessToken

from callboard.agents import Agent
from callboard.calls import sign_ins
from callboard.calls.sign_ins import SignIns
from callboard.errors import SettingsError, ToolError
from callboard.settings import Settings
from callboard.skills.mcp import connection
from callboard.skills.mcp.declaration import OAuth, ServerDeclaration
from callboard.skills.mcp.oauth import Authorization, SignInError
from callboard.skills.mcp.server import RunningServer
from callboard.skills.mcp.signals import Signals
from callboard.skills.mcp.skills import McpServer, McpServers
from callboard.storage import Store
from callboard.storage.values import TOKENS
from callboard_protocol import InputRequest, ToolCallComplete, ToolCallError
from tests.fakes.mcp_oauth import Notes, browse, come_back
from tests.fakes.openai_server import Answer, OpenAIServer, call, chunks, finish, text
from tests.serving import Service, numbered, request, serving
from tests.skills.mcp.conftest import QUICK, Log, Played

# The SDK takes seconds to import on a busy machine.
assert connection
PUBLIC = "https://callboard.test"


def calling(*tools: str) -> list[Answer]:
    rounds = [chunks(call(name, "{}", call_id=name), finish("tool_calls")) for name in tools]
    return [*rounds, chunks(text("There."), finish("stop"))]


@asynccontextmanager
async def serving_notes(
    folder: Path, notes: Notes, *turns: list[Answer], oauth: Any = None, **settings: Any
) -> AsyncIterator[tuple[Service, OpenAIServer]]:
    """A server whose agent has the MCP server `far`, and the endpoint of its model, which takes these turns."""
    far = Agent("scripted", skills=(McpServer("far", url=notes.url, oauth=oauth, trusted=True),))
    async with OpenAIServer([answer for turn in turns for answer in turn]) as model:
        settings |= {"model_base_url": model.base_url, "model": "m", "public_url": PUBLIC}
        async with serving(folder, far, **settings) as service:
            yield service, model


async def ask(service: Service, user: str, account: str | None, callback: httpx.AsyncClient | None = None) -> list[Any]:
    """Return the events of a run of the user. Each address of a question is opened by a browser with the account.

    `callback` is the client of the server to which the browser comes back.
    """
    events = []
    body = request(user={"id": user}, chat_id=f"chat of {user}")
    async with service.client.stream("POST", "/v1/runs", json=body) as response:
        async for _, event in numbered(response):
            events.append(event)
            if isinstance(event, InputRequest):
                await browse(event.url, account, callback or service.client)
    return events


def results(events: list[Any]) -> list[str]:
    ended = [event for event in events if isinstance(event, ToolCallComplete | ToolCallError)]
    return [event.result if isinstance(event, ToolCallComplete) else event.error for event in ended]


def questions(events: list[Any]) -> list[InputRequest]:
    return [event for event in events if isinstance(event, InputRequest)]


@pytest.mark.parametrize("is_older", [False, True], ids=["newest protocol", "older protocol"])
async def test_each_user_signs_in_once_and_calls_run_with_their_own_token(tmp_path: Path, is_older: bool) -> None:
    async with Notes().running() as notes:
        notes.is_older = is_older
        turns = [calling("far_sign_in", "far_whoami"), calling("far_whoami"), calling("far_whoami")]
        async with serving_notes(tmp_path, notes, *turns) as (service, model):
            first = await ask(service, "ada", "ada@notes")
            assert results(first)[-1] == "ada@notes"
            [question] = questions(first)
            assert question.title == "Sign in to far"
            offered = [[one["function"]["name"] for one in sent.get("tools", ())] for sent in model.requests]
            assert offered[:2] == [["far_sign_in"], ["far_whoami", "far_leak"]]
            other = await ask(service, "bob", "bob@notes")
            assert (results(other), len(questions(other))) == (["bob@notes"], 1)
            again = await ask(service, "ada", None)
            assert (results(again), questions(again)) == (["ada@notes"], [])
            assert "Read slowly." in str(model.requests[-1]["messages"][0])


async def test_expired_token_is_refreshed_and_a_refused_refresh_asks_again(tmp_path: Path) -> None:
    async with Notes().running() as notes:
        authorization = notes.authorization
        turns = [
            calling("far_sign_in"),
            calling("far_whoami"),
            calling("far_sign_in", "far_whoami"),
            calling("far_whoami"),
        ]
        async with serving_notes(tmp_path, notes, *turns[:2]) as (service, _):
            await ask(service, "ada", "ada@notes")
            authorization.revoke()
            refreshed = await ask(service, "ada", None)
            assert (results(refreshed), questions(refreshed)) == (["ada@notes"], [])
        # After a restart the token is known.
        authorization.revoke()
        async with serving_notes(tmp_path, notes, turns[2], turns[1]) as (service, _):
            refreshed = await ask(service, "ada", None)
            assert (results(refreshed)[-1], questions(refreshed)) == ("ada@notes", [])
            assert authorization.requests["refresh_token"] == 2
            authorization.revoke()
            authorization.refresh.clear()
            # The person signs in with another account this time, and the client, which was forgotten, is another one.
            authorization.clients.clear()
            asked = await ask(service, "ada", "ada@home")
            assert (results(asked), len(questions(asked))) == (["ada@home"], 1)


async def test_task_ends_if_its_user_does_not_sign_in_again(tmp_path: Path) -> None:
    async with Notes().running() as notes:
        async with serving_notes(tmp_path, notes, calling("far_sign_in"), calling("far_whoami")) as (service, _):
            await ask(service, "ada", "ada@notes")
            notes.tasks.is_on = True
            events = await ask(service, "ada", None)
    assert len(questions(events)) == 1
    assert "refused the sign-in (access_denied)" in results(events)[0]


async def test_refresh_keeps_no_token_of_a_user_whom_another_server_has_deleted(tmp_path: Path) -> None:
    async with Notes().running() as notes:
        async with serving_notes(tmp_path, notes, calling("far_sign_in"), calling("far_whoami")) as (service, _):
            await ask(service, "ada", "ada@notes")
            store = Store(f"sqlite:///{tmp_path}/callboard.db")
            kept = store.records(TOKENS, "ada")

            async def delete() -> None:
                for record in await kept.find():
                    await kept.remove(record.key)

            notes.authorization.before_refresh = delete
            notes.authorization.revoke()
            await store.start()
            [result] = results(await ask(service, "ada", None))
            assert "the data of the user was deleted" in result
            assert not await kept.find()
            await store.close()


async def test_call_ends_with_clear_words_without_a_sign_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "Not run: the MCP server 'far' demands a sign-in: "
    async with Notes().running() as notes:
        turns = [calling("far_sign_in") for _ in range(6)]
        async with serving_notes(tmp_path, notes, *turns) as (service, model):
            closed = "the question was closed, or the user cannot be asked here."
            for value, reason in ((False, "the user declined to sign in."), (None, closed)):
                body = request(user={"id": "ada"}, run_id=f"run-{value}")
                assert results(await service.events_with_answer(body, value)) == [refused + reason]
            assert results(await ask(service, "ada", None)) == [
                refused + "127.0.0.1 refused the sign-in (access_denied)."
            ]
            nobody = await service.events(request())
            assert results(nobody) == [refused + "each user signs in for themselves, and this request names no user."]
            monkeypatch.setattr(sign_ins, "SIGN_IN_SECONDS", 0.1)
            ignored = results(await service.events(request(user={"id": "ada"})))
            assert ignored == [refused + "nobody signed in within 600 s."]
            asked = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}], "user": "ada"}
            await service.client.post("/v1/chat/completions", json=asked)
            assert model.requests[-1]["messages"][-1]["content"] == f"Error: {refused}{closed}"
        assert not notes.authorization.issued


async def test_server_that_demands_a_sign_in_for_calls_only_offers_its_tools_before(tmp_path: Path) -> None:
    async with Notes().running() as notes:
        notes.guest = "guest"
        resource = notes.authorization.resource
        guest = AccessToken(token="guest", client_id="", scopes=["notes"], resource=resource)
        notes.authorization.tokens["guest"] = guest
        async with serving_notes(tmp_path, notes, calling("far_whoami", "far_whoami")) as (service, model):
            events = await ask(service, "ada", "ada@notes")
            assert [one["function"]["name"] for one in model.requests[0]["tools"]] == ["far_whoami", "far_leak"]
        assert (results(events), len(questions(events))) == (["ada@notes"] * 2, 1)


async def test_browser_may_come_back_to_another_server_and_all_servers_need_the_same_key(tmp_path: Path) -> None:
    async with Notes().running() as notes:
        turns = [calling("far_sign_in"), calling("far_sign_in", "far_whoami")]
        async with serving_notes(tmp_path, notes, turns[0]) as (service, _):
            same = {"database_url": f"sqlite:///{tmp_path}/callboard.db"}
            async with serving_notes(tmp_path, notes, turns[1], **same) as (other, _):
                assert len(questions(await ask(service, "ada", "ada@notes", callback=other.client))) == 1
                # It has not listed the tools yet, and has the token.
                again = await ask(other, "ada", None)
                assert (results(again)[-1], questions(again)) == ("ada@notes", [])
    unset = SignIns(Store("postgresql+asyncpg://ada@127.0.0.1:9/none"), Settings(data_dir=tmp_path))
    with pytest.raises(SettingsError, match="set CALLBOARD_TOKEN_KEY"):
        await unset.save("ada", "far", {})


@pytest.mark.parametrize("forgets", [False, True])
async def test_stopped_call_leaves_no_open_sign_in(tmp_path: Path, forgets: bool) -> None:
    async with Notes().running() as notes:
        async with serving_notes(tmp_path, notes, calling("far_sign_in")[:1], calling("far_sign_in")) as (service, _):
            stopped = request(user={"id": "ada"}, run_id="stopped", chat_id="c")
            async with service.client.stream("POST", "/v1/runs", json=stopped) as response:
                async for _, event in numbered(response):
                    if isinstance(event, InputRequest):
                        path = "/v1/user-data" if forgets else "/v1/runs/stopped/cancel"
                        await service.client.request("DELETE" if forgets else "POST", path, params={"user_id": "ada"})
                        address = event.url
            assert "is over" in await browse(address, "ada@notes", service.client)
            again = await ask(service, "ada", "ada@notes")
            assert (len(questions(again)), results(again)[0][:10]) == (1, "Signed in.")


async def test_parallel_calls_of_a_user_ask_once(tmp_path: Path) -> None:
    together = chunks(
        *(call("far_sign_in", "{}", call_id=f"call-{n}", index=n) for n in range(2)), finish("tool_calls")
    )
    async with Notes().running() as notes:
        async with serving_notes(tmp_path, notes, [together, *calling()]) as (service, _):
            events = await ask(service, "ada", "ada@notes")
        assert len(questions(events)) == 1
        assert len([text for text in results(events) if text.startswith("Signed in.")]) == 2


async def test_secrets_are_in_no_event_page_log_line_export_or_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Notes().running() as notes:
        turns = [calling("far_sign_in", "far_leak"), calling("far_whoami")]
        async with serving_notes(tmp_path, notes, *turns) as (service, model):
            events = await ask(service, "ada", "ada@notes")
            assert "the token [secret] is odd" in results(events)[-1]
            export = (await service.client.get("/v1/user-data", params={"user_id": "ada"})).text
            lines = [json.loads(line) for line in export.splitlines()]
            assert [line["value"] for line in lines if line["kind"] == "record"] == ["[secret]"]
            inspected = [(await service.client.get(f"/inspect/{page}")).text for page in ("", "chats", "calls")]
            inspected.append((await service.client.get("/inspect/agent?id=scripted")).text)
            seen = [str(events), export, *inspected, str(model.requests), *capsys.readouterr()]
            await service.client.delete("/v1/user-data", params={"user_id": "ada"})
            # Its token is gone at once, also for the open connection.
            assert len(questions(await ask(service, "ada", "ada@notes"))) == 1
        stored = await asyncio.to_thread(lambda: [path.read_bytes() for path in tmp_path.iterdir()])
        seen += [content.decode(errors="replace") for content in stored]
        assert notes.authorization.issued
        assert [secret for secret in notes.authorization.issued if any(secret in text for text in seen)] == []
        assert (tmp_path / "token_key").stat().st_mode & 0o777 == 0o600


async def test_callback_of_another_sign_in_or_a_second_one_is_refused(tmp_path: Path) -> None:
    async with Notes().running() as notes:
        async with serving_notes(tmp_path, notes, calling("far_sign_in", "far_whoami")) as (service, _):
            events: list[Any] = []
            body = request(user={"id": "ada", "name": "<i>Ada"})
            async with service.client.stream("POST", "/v1/runs", json=body) as response:
                async for _, event in numbered(response):
                    events.append(event)
                    if not isinstance(event, InputRequest):
                        continue
                    foreign = await come_back("/oauth/callback?code=x&state=foreign&confirm=yes", service.client)
                    # A page that was opened without a confirmation, for example by a link that somebody has sent.
                    shown = await browse(event.url, "eve@notes", service.client, goes_on=False)
                    state = parse_qs(urlsplit(event.url).query)["state"][0]
                    # An authorization server that sends an error too skips no confirmation.
                    await come_back(f"/oauth/callback?code=x&error=y&state={state}", service.client, goes_on=False)
                    done = await browse(event.url, "ada@notes", service.client)
                    again = await come_back(f"/oauth/callback?code=x&state={state}&confirm=yes", service.client)
            late = await come_back(f"/oauth/callback?code=x&state={state}&confirm=yes", service.client)
    assert results(events)[-1] == "ada@notes"
    assert "is not known here" in foreign
    assert "<b>&lt;i&gt;Ada (ada)</b>" in shown
    assert "go on in the chat" in done
    assert "is over" in again
    assert "is over" in late


@pytest.mark.parametrize(
    ("metadata", "named", "answered", "reason"),
    [
        ({"authorization_servers": ["http://127.0.0.1:9/"]}, {}, {}, "127.0.0.1 cannot be reached"),
        ({"resource": "https://bank.example/mcp"}, {}, {}, "does not match expected"),
        ({}, {"issuer": "https://bank.example"}, {}, "issuer mismatch"),
        ({}, {}, {"iss": "https://bank.example"}, "iss mismatch"),
        ({}, {"authorization_endpoint": "javascript:alert(1)"}, {}, "answered HTTP 404"),
        ({}, {"authorization_endpoint": "https://bank.example@evil.example/"}, {}, "is no web address"),
        ({}, {"authorization_endpoint": "https://bank.example/#"}, {}, "its sign-in failed: KeyError"),
        ({}, {}, {"code": "of-another-sign-in"}, r"answered HTTP 400 \(invalid_grant\)"),
    ],
)
async def test_sign_in_that_leads_astray_fails_with_the_reason_and_without_a_token(
    tmp_path: Path, metadata: dict[str, Any], named: dict[str, Any], answered: dict[str, str], reason: str
) -> None:
    async with Notes().running() as notes:
        authorization = notes.authorization
        notes.metadata = {"authorization_servers": [authorization.issuer], **metadata}
        authorization.named, authorization.answered = named, answered
        async with serving_notes(tmp_path, notes, calling("far_sign_in")) as (service, _):
            [result] = results(await ask(service, "ada", "ada@notes"))
        assert re.search(f"demands a sign-in: .*{reason}", result)
        assert not authorization.tokens
        assert not any(secret in result for secret in authorization.issued)


async def test_server_names_no_address_in_the_admins_network() -> None:
    far = ServerDeclaration("far", url="https://10.0.0.1/mcp", oauth=OAuth(issuer="https://127.0.0.1:9"))
    flow = Authorization(far, Signals(), None, None)
    for address, reason in (
        ("https://169.254.169.254/latest", "leads to 169.254.169.254, which is not on the public web"),
        ("https://10.0.0.2/token", "leads to 10.0.0.2, which is not on the public web"),
        ("http://93.184.215.14/token", "leads to 93.184.215.14 without encryption"),
        ("https://127.0.0.1:9/token", "127.0.0.1 cannot be reached"),
    ):
        with pytest.raises(SignInError, match=reason):
            await flow._send(httpx2.Request("GET", address))


async def test_invalid_address_of_metadata_fails_the_sign_in_only() -> None:
    own = OAuth(grant_type="client_credentials", client_id="a", client_secret="b", issuer="https://login.example")
    flow = Authorization(ServerDeclaration("far", url="https://far.example/mcp", oauth=own), Signals(), None, None)
    steps = flow.async_auth_flow(httpx2.Request("POST", "https://far.example/mcp"))
    demand = {"www-authenticate": 'Bearer resource_metadata="https://far.example:port"'}
    refusal = httpx2.Response(401, headers=demand, request=await anext(steps))
    with pytest.raises(SignInError, match="its sign-in failed: InvalidURL"):
        await steps.asend(refusal)


async def test_secret_of_a_client_goes_to_its_declared_issuer_only(tmp_path: Path) -> None:
    async with Notes().running() as notes:
        authorization = notes.authorization
        notes.metadata = {"authorization_servers": [authorization.issuer]}
        # Without metadata the SDK uses the MCP server's own address.
        authorization.named = {"issuer": None}
        oauth = {"client_id": "a", "client_secret": "the secret", "issuer": authorization.issuer}
        async with serving_notes(tmp_path, notes, calling("far_sign_in"), oauth=oauth) as (service, _):
            events = await ask(service, "ada", "ada@notes")
    assert not questions(events)
    assert re.search("the declared issuer .* has no metadata", results(events)[0])


async def test_callboards_own_token_is_got_and_renewed_without_a_user(tmp_path: Path, log: Log) -> None:
    async with Notes().running() as notes:
        authorization = notes.authorization
        authorization.clients["callboard"] = "a secret/of:the client"
        own = {"clientId": "callboard", "clientSecret": "${NOTES_SECRET}", "scopes": ["notes"]}
        own |= {"grantType": "client_credentials", "issuer": authorization.issuer}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOTES_SECRET", authorization.clients["callboard"])
            file = tmp_path / "mcp.json"
            file.write_text(json.dumps({"mcpServers": {"far": {"url": notes.url, "oauth": own}}}))
            [skill] = McpServers(file).servers()
        far = Played(RunningServer(skill.declaration, *QUICK))
        async with far.lifespan():
            assert (await far.call("whoami")).text == "callboard"
            authorization.revoke()
            assert (await far.call("whoami")).text == "callboard"
            with pytest.raises(ToolError, match=r"the token \[secret\] is odd"):
                await far.call("leak")
            authorization.clients["callboard"] = "another secret"
            authorization.revoke()
            with pytest.raises(ToolError, match=r"demands a sign-in: .* answered HTTP 401 \(invalid_client\)"):
                await far.call("whoami")
    assert not any(secret in str(log.lines) for secret in (*authorization.issued, "a secret/of:the client"))
