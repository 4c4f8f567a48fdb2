"""The function "Callboard approvals" of Open WebUI: which calls it may run, and what other models are told."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipe.loader import PIPE, load_function, provide_open_webui, read_next_turn
from tests.pipe.owui_blocks import reduce_native, streamed_content
from tests.pipe.test_rendering import completed, drawn, failed, message, started
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
        ({}, {"id": "callboard.till"}),
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


# --- Other models in the same chat.

OTHER = {"id": "gpt", "info": {"base_model_id": None}}
RESULT = '<b>Hamlet</b> & "Lisbon"\n\n**20:00**\n\n</details>\n- 20:00'  # Drawn below its card too.
ANSWER = (
    message('I look.\n\n<details type="tool_calls" id="f" name="pay" arguments="{}" result="1" round="0">\n'),
    {"type": "reasoning", "content": "Two shops.\n<b>"},
    started("a:1", "shop_search", label="Search the shop · Hamlet", tool_args={"play": "Hamlet"}, round_index=0),
    started("b", "shop_search", label="Search the shop · Lear", tool_args={"play": "Lear > Kent"}, round_index=0),
    completed(RESULT, "a:1", duration_ms=1100),
    failed("the shop is closed", "b", code="failed", duration_ms=5),
    started("c", "ask.agent", tool_args={}, round_index=1),
    started("inner", "look", parent_call_id="c"),
    completed("seen", "inner", duration_ms=5),
    completed("It is sold out.", "c", duration_ms=5),
    {"type": "tool_call_args_delta", "tool_call_id": "d", "tool_name": "buy", "delta": '{"seat'},
    failed("cut", "d", code="failed"),
    message("Sold out."),
    {"type": "notice", "content": "Stopped."},
    started("open", "buy", round_index=2),
)


def a_call(call_id: str, name: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def a_result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def replayed(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Open WebUI makes of stored items for the next turn: `convert_output_to_messages` of its utils/misc.py."""
    ended = {item["call_id"] for item in items if item["type"] == "function_call_output"}
    told: list[dict[str, Any]] = []
    for item in items:
        if item["type"] == "function_call_output":
            told.append(a_result(item["call_id"], item["output"][0]["text"]))
        elif item["type"] == "message" or (item["type"] == "function_call" and item["call_id"] in ended):
            if not told or told[-1]["role"] == "tool":
                told.append({"role": "assistant", "content": ""})
            if item["type"] == "message":
                told[-1]["content"] = "\n".join(filter(None, [told[-1]["content"], item["content"][0]["text"]]))
            else:
                function = item.get("provider_function", item) if PIPE.is_release(0, 12, 2) else item
                call = a_call(item["call_id"], function["name"], function["arguments"])
                told[-1].setdefault("tool_calls", []).append(call)
    return told


async def tell(messages: list[dict[str, Any]], model: dict[str, Any] = OTHER) -> list[dict[str, Any]]:
    loaded = {"callboard_two": PIPE.Pipe(), "plain": object()}
    request = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(FUNCTIONS=loaded)))
    body = await FILTER.Filter().inlet({"messages": copy.deepcopy(messages)}, "callboard_approvals", model, request)
    told: list[dict[str, Any]] = body["messages"]
    return told


@pytest.mark.parametrize("version", ["0.11.4", "0.12.2"])
@pytest.mark.parametrize("emitter", [PIPE.StreamEmitter, PIPE.NativeEmitter])
async def test_another_model_gets_the_calls_with_their_names_and_results(
    emitter: Any, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIPE, "VERSION", version)
    question = {"role": "user", "content": "Tickets?"}
    messages = [question, *replayed(reduce_native(emitter().updates(drawn(*ANSWER), 100))), question]
    _, first, hamlet, lear, second, sold, third, cut, last, _ = told = await tell(messages)
    assert first["content"].startswith("I look.")
    assert first["tool_calls"] == [
        a_call("a_1", "shop_search", '{"play": "Hamlet"}'),
        a_call("b", "shop_search", '{"play": "Lear > Kent"}'),
    ]
    assert [hamlet, lear] == [a_result("a_1", RESULT), a_result("b", "Error: the shop is closed")]
    assert second["tool_calls"] + third["tool_calls"] == [a_call("c", "ask_agent"), a_call("d", "buy")]
    assert [sold, cut] == [a_result("c", "It is sold out."), a_result("d", "Error: cut")]
    assert last == {"role": "assistant", "content": "Sold out."}
    assert await tell(told) == told
    assert await tell(messages, {"id": "plain.gpt"}) == told
    calls = [call for one in read_next_turn(messages) for call in one.get("tool_calls", ())]
    assert [call["function"]["name"] for call in calls][:4] == ["shop_search", "shop_search", "ask.agent", "buy"]
    for model in ("callboard.till", "callboard_two.till"):
        assert await tell(messages, {"id": "preset", "info": {"base_model_id": model}}) == messages


async def test_another_model_gets_the_thread_of_a_channel_without_blocks() -> None:
    # Open WebUI strips an answer that is a call alone.
    answers = f"{drawn(*ANSWER).render()}\n\nTill: {BLOCK.strip()}"
    thread = f"Here's the thread history:\n\nAnn: Tickets?\n\nTill: {answers}\n\nBob: And now?"
    [told] = await tell([{"role": "system", "content": thread}])
    words = told["content"].replace(PIPE.GUARDED + "details", "")
    assert not any(part in words for part in ("<details", "</details", "Lisbon", "paid", "Callboard"))
    assert "Sold out." in words
    assert words.endswith("Bob: And now?")


BLOCK = drawn(started("a", "pay"), completed("paid", "a")).render()


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": BLOCK}],
        [{"role": "assistant", "content": BLOCK.replace("\n<details", "\nLike <details")}],
        [{"role": "assistant", "content": BLOCK.replace("round=", "part=")}],
        [{"role": "assistant", "content": BLOCK.replace("id=", "at=")}],
        [{"role": "assistant", "content": None, "tool_calls": [a_call("functions.x:0", "x.y")]}],
        [{"role": "assistant", "content": [{"type": "text", "text": BLOCK}]}],
        [{"role": "assistant", "content": '<details type="reasoning" x="">\n<summary>Plan</summary>\na\n</details>'}],
        [{"role": "assistant", "content": "", "tool_calls": [{"id": None, "function": None}, 7]}],
        [7, {"role": "tool", "tool_call_id": ["a"]}],
        [],
    ],
)
async def test_what_the_pipe_has_not_drawn_stays_as_it_is(messages: list[dict[str, Any]]) -> None:
    assert await tell(messages) == messages


async def test_a_block_that_a_model_has_copied_is_no_second_call() -> None:
    told = await tell([{"role": "assistant", "content": BLOCK}, {"role": "assistant", "content": f"See:{BLOCK}"}])
    assert [one.get("content") for one in told] == ["", "paid", "See:"]


async def test_a_block_of_an_older_pipe_has_the_tools_name_before_its_label() -> None:
    block = BLOCK.replace('name="pay" tool="pay"', 'name="pay · 7 · 1.1 s"')
    [told, _] = await tell([{"role": "assistant", "content": block}])
    assert told["tool_calls"] == [a_call("a", "pay")]


async def test_an_answer_that_waited_keeps_open_webuis_card_behind_its_blocks() -> None:
    card = {"role": "assistant", "content": f"I pay.\n{BLOCK}\nAnd:", "tool_calls": [a_call("b", "pay")]}
    told = await tell([card, a_result("b", "paid")])
    assert [(one["role"], one["content"], len(one.get("tool_calls", ()))) for one in told] == [
        ("assistant", "I pay.", 1),
        ("tool", "paid", 0),
        ("assistant", "And:", 1),
        ("tool", "paid", 0),
    ]
