"""The function "Callboard approvals" of Open WebUI, with the real pipe and real servers: which calls it may run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipe.loader import PIPE, load_function, provide_open_webui
from tests.pipe.owui_blocks import streamed_content
from tests.pipe.test_stream import a_pipe, answer
from tests.waiting import ParkedRun, parked_run

FILTER = load_function("callboard_filter.py")
ANN = {"id": "ann", "name": "Ann"}
BOB = {"id": "bob", "name": "Bob"}


def approved(call_id: str = "c1", **card: Any) -> dict[str, Any]:
    """A pending card after Allow, while Open WebUI looks for its tool."""
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "refund", "approved": True}
    return {**item, "status": "in_progress", **card}


@dataclass
class OpenWebUI:
    """The functions of Open WebUI, and the one message that it has."""

    pipes: dict[str, Any]
    message: dict[str, Any]

    async def find_message(self, _chat_id: str, _message_id: str) -> dict[str, Any]:
        return self.message

    async def find_pipe(self, _request: Any, pipe_id: str) -> Any:
        if pipe_id not in self.pipes:
            raise RuntimeError(f"Function not found: {pipe_id}")
        return self.pipes[pipe_id]

    async def resume(
        self, *, user: dict[str, Any] = ANN, model: str = "callboard.till", filter_id: str = "callboard_approvals"
    ) -> dict[str, Any]:
        """Return the tools that the filter has added for a message after Allow."""
        metadata: dict[str, Any] = {"chat_id": "chat", "message_id": "message", "tool_approval_resume": "tools"}
        body = await FILTER.Filter().request({}, filter_id, metadata, user, {"id": model})
        assert body == {}
        tools: dict[str, Any] = metadata.get("tools", {})
        return tools

    async def run(self, **fields: Any) -> str:
        """Return the result of the tool that the filter has added."""
        tools = await self.resume(**fields)
        result: str = await tools["refund"]["callable"]()
        return result


@pytest.fixture
def open_webui(monkeypatch: pytest.MonkeyPatch) -> OpenWebUI:
    webui = OpenWebUI({}, {"output": [approved()]})
    modules: dict[str, dict[str, Any]] = {
        "models.chats": {"Chats": SimpleNamespace(get_message_by_id_and_message_id=webui.find_message)},
        "functions": {"get_function_module_by_id": webui.find_pipe},
    }
    provide_open_webui(monkeypatch, modules)
    return webui


@asynccontextmanager
async def connected(open_webui: OpenWebUI, folder: Path, pipe_id: str = "callboard") -> AsyncIterator[ParkedRun]:
    """A server with a parked run, and a pipe of Open WebUI that is connected to it."""
    async with parked_run(folder) as parked:
        open_webui.pipes[pipe_id] = a_pipe(str(parked.service.client.base_url), resume_seconds=0)
        yield parked


async def is_waiting(parked: ParkedRun) -> bool:
    """Whether the call still waits for Ann."""
    found = (await parked.service.client.get("/v1/approvals?user_id=ann")).json()
    return bool(found["approvals"])


async def test_an_approved_card_runs_its_call_once(open_webui: OpenWebUI, tmp_path: Path) -> None:
    async with connected(open_webui, tmp_path) as parked:
        assert await open_webui.run() == "Seat 7 is paid back."
        assert await open_webui.run() == "Seat 7 is paid back."
    assert parked.paid == [7]


async def test_another_user_cannot_run_it_with_the_ids_of_the_message(open_webui: OpenWebUI, tmp_path: Path) -> None:
    async with connected(open_webui, tmp_path) as parked:
        assert "there is no chat" in await open_webui.run(user=BOB)
        metadata = {"chat_id": "chat", "message_id": "message", "tool_approval_resume": "model"}
        updates = await answer(open_webui.pipes["callboard"], __user__=BOB, __metadata__=metadata)
        assert "there is no chat" in streamed_content(updates)
        assert await is_waiting(parked)
    assert parked.paid == []


@pytest.mark.parametrize("card", [approved("c2"), approved(id="fc_other"), approved(status="completed")])
async def test_a_forged_card_runs_nothing(open_webui: OpenWebUI, tmp_path: Path, card: dict[str, Any]) -> None:
    open_webui.message["output"] = [card]
    async with connected(open_webui, tmp_path) as parked:
        for offered in (await open_webui.resume()).values():
            assert str(await offered["callable"]()).startswith("Error: ")
        assert await is_waiting(parked)
    assert parked.paid == []


async def test_each_of_two_pipes_asks_its_own_server(open_webui: OpenWebUI, tmp_path: Path) -> None:
    async with (
        connected(open_webui, tmp_path / "one", "callboard") as one,
        connected(open_webui, tmp_path / "two", "callboard_two") as two,
    ):
        for filter_id in ("callboard_approvals", "callboard_two_approvals"):
            tools = await open_webui.resume(model="callboard_two.till", filter_id=filter_id)
            assert bool(tools) == (filter_id == "callboard_two_approvals")
        assert await tools["refund"]["callable"]() == "Seat 7 is paid back."
    assert (one.paid, two.paid) == ([], [7])


@pytest.mark.parametrize("filter_id", ["callboard_approvals", "_approvals"])
async def test_a_filter_without_its_pipe_or_of_another_id_adds_nothing(open_webui: OpenWebUI, filter_id: str) -> None:
    assert await open_webui.resume(filter_id=filter_id) == {}


@pytest.mark.parametrize(
    ("metadata", "model"),
    [
        ({"tool_approval_resume": "model"}, {"id": "callboard.till"}),
        ({"tool_approval_resume": "tools"}, {"id": "gpt", "info": {"base_model_id": None}}),
        ({"tool_approval_resume": "tools"}, {"id": "callboardx.till", "info": None}),
    ],
)
async def test_a_request_that_resumes_no_answer_of_the_pipe_is_left_alone(
    open_webui: OpenWebUI, metadata: dict[str, Any] | None, model: dict[str, Any] | None
) -> None:
    open_webui.pipes["callboard"] = PIPE.Pipe()
    before = dict(metadata or {})
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert await FILTER.Filter().request(body, "callboard_approvals", metadata, ANN, model) is body
    assert (metadata or {}) == before
