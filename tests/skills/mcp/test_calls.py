"""Calls to our own server, made with the official SDK: progress during a call, and its possible ends."""

import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from callboard.errors import ToolTimeout
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.server import RunningServer
from tests.skills.mcp.conftest import HERE, QUICK, Log, Make, Played

shared_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[RunningServer]:
    """A shared server for tests that do not change it, because starting takes longer than a call."""
    server = RunningServer(ServerDeclaration("ours", sys.executable, (str(HERE / "our_server.py"),)), *QUICK)
    async with Played(server).lifespan():
        yield server


@pytest.fixture
def shared(running: RunningServer) -> Played:
    return Played(running)


@shared_loop
async def test_progress_becomes_statuses_of_the_call_and_without_end_does_not_fill_the_history(shared: Played) -> None:
    assert (await shared.call("count", steps=4)).text == "counted to 4"
    assert [report.progress for report in shared.reports] == [25, 50, 75, 100]
    assert (shared.reports[0].status, shared.reports[0].message) == ("processing", "step 1")
    await shared.call("count", steps=500)
    assert len(shared.reports) < 200


async def test_timed_out_call_is_cancelled_at_server(ours: Make) -> None:
    played = ours(timeout_seconds=0.2)
    async with played.lifespan():
        with pytest.raises(ToolTimeout, match=r"ours_wait did not end within 0\.2 s"):
            await played.call("wait")
        assert (await played.call("was_cancelled")).text == "yes"


@shared_loop
async def test_giant_result_is_cut_with_note(shared: Played) -> None:
    result = await shared.call("big", characters=5_000_000)
    assert result.text.startswith("x" * 100_000)
    assert result.text.endswith("[cut here: 4900000 more characters. Ask for less at a time.]")


async def test_server_gets_only_declared_variables_and_their_secrets_reach_neither_the_model_nor_the_log(
    ours: Make, log: Log, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CALLBOARD_API_KEY", "our-own-key")
    icon = f"data:image/png;base64,{'k' * 40}"
    played = ours(env={"TOWN": "Graz", "SERVICE_TOKEN": "abc-123-def", "ICON_TOKEN": icon})
    async with played.lifespan():
        assert (await played.call("variable", name="TOWN")).text == "Graz"
        assert (await played.call("variable", name="CALLBOARD_API_KEY")).text == "not set"
        result = await played.call("variable", name="SERVICE_TOKEN")
        assert (await played.call("variable", name="ICON_TOKEN")).files == ()
        await played.call("complain", words="the token abc-123-def is wrong")
        line = await log.until("mcp_server_stderr", line="the token [secret] is wrong")
    assert (result.text, result.data) == ("[secret]", None)
    assert "abc-123-def" not in str(log.lines)
    assert [report.message for report in played.reports] == ["the token [secret] is wrong"]
    assert line["level"] == "debug"
    assert "abc-123-def" not in repr(played.server.declaration)
    # What a server writes to its standard error is never our output.
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "args",
    [
        ("--api-key", "sk-1x/y=z"),
        ("--header", "Authorization: Bearer sk-1x/y=z"),
        ("--header=X-Api-Key:sk-1x/y=z",),
        ("--config", '{"region": "eu", "apiKey": "sk-1x/y=z"}'),
    ],
)
def test_a_secret_among_the_arguments_is_hidden(args: tuple[str, ...]) -> None:
    others = ("-y", "some-server", "--key-column", "user_id", "--auth-mode=per_user", "--token", "--verbose")
    for declared in (ServerDeclaration("a", "npx", (*others, *args)), ServerDeclaration("a", " ".join(("npx", *args)))):
        assert declared.hide("Key sk-1x/y=z, Bearer user_id some-server per_user --verbose") == (
            "Key [secret], Bearer user_id some-server per_user --verbose"
        )
    assert "sk-1x" not in repr(ServerDeclaration("a", "npx", args))
