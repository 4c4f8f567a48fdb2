"""A Home Assistant that is not there, does not let us in, or is none."""

import logging

import pytest

from callboard.errors import NotSetUp, ToolError
from callboard.skills import HomeAssistant
from callboard.storage import Store
from tests.fakes.home_assistant import TOKEN, HomeAssistantServer
from tests.skills.home.conftest import Room


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("status", 400, "name the proxy in trusted_proxies"),
        ("status", 401, "refused the token (401): set CALLBOARD_HOME_ASSISTANT_TOKEN"),
        ("status", 404, "does not answer with Home Assistant's API"),
        ("status", 503, "is not ready (503): it may be starting"),
        ("garbled", True, "does not answer with Home Assistant's API"),
    ],
)
async def test_answer_that_is_no_state_of_a_house_is_explained_with_advice(
    room: Room, assistant: HomeAssistantServer, field: str, value: int, told: str
) -> None:
    setattr(assistant, field, value)
    with pytest.raises(ToolError) as raised:
        await room.home("query")
    assert told in str(raised.value)


async def test_wrong_token_is_reported_without_token(
    assistant: HomeAssistantServer, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    room = Room(HomeAssistant(assistant.url, "not-the-token"), store)
    with pytest.raises(ToolError, match="refused the token") as raised:
        await room.home("query")
    assert [offer["access_token"] for offer in assistant.offered] == ["not-the-token"]
    # The server's own log is the fake's.
    logged = [record.getMessage() for record in caplog.records if not record.name.startswith("uvicorn")]
    assert "not-the-token" not in "\n".join([*logged, str(raised.value)])


async def test_a_redirect_is_not_followed_with_the_token(room: Room, assistant: HomeAssistantServer) -> None:
    async with HomeAssistantServer() as elsewhere:
        assistant.location = f"{elsewhere.url}/api/websocket"
        with pytest.raises(ToolError, match=r"redirects to another address \(302\)"):
            await room.home("query")
        assert elsewhere.offered == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "homeassistant.local:8123", "http://["])
async def test_unreachable_home_assistant_is_reported(store: Store, url: str) -> None:
    with pytest.raises(ToolError, match=r"cannot be reached .* CALLBOARD_HOME_ASSISTANT_URL"):
        await Room(HomeAssistant(url, TOKEN), store).home("query")


def test_without_settings_the_error_names_them() -> None:
    with pytest.raises(NotSetUp, match="needs CALLBOARD_HOME_ASSISTANT_URL, CALLBOARD_HOME_ASSISTANT_TOKEN"):
        HomeAssistant.from_settings({})
