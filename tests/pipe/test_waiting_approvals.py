"""Approvals that wait: the pending card that the pipe makes, and the rest of the answer after it."""

import asyncio
import re
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Parked,
    Plan,
    PlanStep,
    Rewind,
    RunStart,
    Source,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.pipe.loader import PIPE, provide_open_webui
from tests.pipe.owui_blocks import reduce_native, streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, answer_json, error_response, frames, hang_up, stream
from tests.pipe.test_files import receive_pages
from tests.pipe.test_stream import METADATA, a_pipe, answer, start

START = RunStart(run_id="r", agent="assistant")
LOOK = ToolCallStart(tool_call_id="c0", tool_name="look")
FOUND = ToolCallComplete(tool_call_id="c0", result="a door")
SEND = ToolCallStart(tool_call_id="c1", tool_name="send", tool_args={"to": "Ann"})
ASKED = InputRequest(request_id="approve:c1", kind="confirmation", title="Run send?", tool_call_id="c1")
PARKED = Parked(tool_call_ids=("c1",))
BEFORE = [START, Message(content="Look: "), LOOK, FOUND, SEND, ASKED, PARKED]
SENT = ToolCallComplete(tool_call_id="c1", tool_name="send", result="sent")
NEW = Source(source={"name": "new"}, metadata=({"source": "new", "source_number": 1},))
PICTURE = {"type": "image", "name": "p.png", "url": "data:image/png;base64,iVBORw0KGgo="}


class OpenWebUI:
    """The message of an answer in Open WebUI's database."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {"sources": [], "statusHistory": []}

    async def find(self, _chat_id: str, _message_id: str) -> dict[str, Any]:
        return self.message

    def show(self, call_id: str = "c1", text: str = "", **card: Any) -> None:
        """Show a pending card, with its output if there is a text."""
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "send", **card}
        self.message.setdefault("output", []).append(item)
        if text:
            self.end(call_id, text)

    def end(self, call_id: str, text: str) -> None:
        """Add the output of a card."""
        output = [{"type": "input_text", "text": text}]
        self.message["output"].append({"type": "function_call_output", "call_id": call_id, "output": output})

    def say(self, text: str) -> None:
        """Add a message item, as the pipe does, or, without a text, Open WebUI itself after the last output."""
        self.message["output"].append({"type": "message", "content": [{"type": "output_text", "text": text}]})


@pytest.fixture
def open_webui(monkeypatch: pytest.MonkeyPatch) -> OpenWebUI:
    webui = OpenWebUI()
    chats = SimpleNamespace(get_message_by_id_and_message_id=webui.find)
    provide_open_webui(monkeypatch, {"models.chats": {"Chats": chats}})
    return webui


def metadata(**fields: Any) -> dict[str, Any]:
    """What Open WebUI gives with a request: the ids of the message, its tools and its parameters."""
    return {**METADATA, "tools": {}, "params": {"tool_approval_mode": "full"}, **fields}


def serve_run(server: ScriptedServer, *events: Any) -> None:
    """Let the server have the run `r` with these events for the message."""
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
    rows += [
        {"role": "tool", "tool_call_id": event.tool_call_id} for event in events if isinstance(event, ToolCallStart)
    ]
    rows = [{"message_id": "message", "run_id": "r", **row} for row in rows]
    server.on("GET", "messages", answer_json({"messages": rows}))
    server.on("GET", "r", answer_json({"listened_to": False}))
    server.on("GET", "events", stream(frames(*events)))
    server.on("POST", "input", answer_json({}, 202))


async def answers(server: ScriptedServer) -> list[tuple[str, Any]]:
    return [(one.json["request_id"], one.json["value"]) for one in server.requests if one.path.endswith("/input")]


@pytest.mark.parametrize(
    ("version", "ids", "stream_it", "waits"),
    [
        ("0.12.4", {}, True, True),
        ("0.11.4", {}, True, False),
        ("0.12.4", {"chat_id": "channel:1"}, True, False),
        ("0.12.4", {"message_id": None}, True, False),
        ("0.12.4", {}, False, False),
    ],
)
async def test_approvals_wait_only_where_open_webui_can_show_it(
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    ids: dict[str, Any],
    stream_it: bool,
    waits: bool,
) -> None:
    monkeypatch.setattr(PIPE, "VERSION", version)
    server.on("POST", "runs", stream(frames(START, Message(content="Hi"), Done())))
    pipe = a_pipe(server.url)
    if stream_it:
        await answer(pipe, __metadata__=metadata(**ids))
    else:
        await pipe.pipe({"model": "callboard.assistant", "stream": False, "messages": []}, __metadata__=metadata())
    [asked] = await server.seen("POST", "runs")
    assert asked.json.get("approvals_wait", False) is waits


async def test_a_parked_run_ends_the_answer_with_a_pending_card_for_each_call(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(*BEFORE)))
    server.on("POST", "input", answer_json({}, 202))
    given = metadata()
    updates = await answer(a_pipe(server.url), __metadata__=given)
    *_, text, card = reduce_native([update for update in updates if "output_index" in update])
    assert card == {
        "type": "function_call",
        "id": "fc_c1",
        "call_id": "c1",
        "name": "send",
        "arguments": '{"to": "Ann"}',
        "status": "in_progress",
    }
    # The card of Open WebUI is the only one of this call.
    [block] = tool_blocks(text["content"][0]["text"])
    assert block.value("result") == "a door"
    assert given["params"]["tool_approval_mode"] == "ask"
    assert list(given["tools"]) == ["send"]
    assert "Error" in await given["tools"]["send"]["callable"]()
    assert [update for update in updates if "event" in update][-1]["event"]["data"]["description"].startswith(
        "Waits for your approval, 2 calls"
    )
    assert not [one for one in server.requests if one.path.endswith("/cancel")]


async def test_a_connection_that_breaks_after_the_run_was_parked_is_no_loss(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(*BEFORE), end="abort"))
    server.on("GET", "events", stream())
    server.on("POST", "input", answer_json({}, 202))
    updates = await answer(a_pipe(server.url), __metadata__=metadata())
    assert updates[-1]["item"]["id"] == "fc_c1"


async def test_a_run_that_has_gone_on_since_it_was_parked_needs_no_card(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(*BEFORE, SENT, Message(content="Done."), Done())))
    text = streamed_content(await answer(a_pipe(server.url), __metadata__=metadata()))
    assert [block.value("result") for block in tool_blocks(text)] == ["a door", "sent"]


async def test_an_answer_that_waits_again_after_an_approval_gets_another_card(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    open_webui.show(status="completed", approved=True, text="sent")
    again = ToolCallStart(tool_call_id="c2", tool_name="send", tool_args={"to": "Bob"})
    serve_run(server, *BEFORE, SENT, Message(content="One more."), again, Parked(tool_call_ids=("c2",)))
    updates = await answer(a_pipe(server.url), __metadata__=metadata(tool_approval_resume="tools"))
    assert updates[-1]["item"]["call_id"] == "c2"


async def test_an_answer_is_not_drawn_again_if_its_message_cannot_be_read(
    server: ScriptedServer, open_webui: OpenWebUI, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_chat_id: str, _message_id: str) -> dict[str, Any]:
        raise RuntimeError("database is locked")

    monkeypatch.setattr(sys.modules["open_webui.models.chats"].Chats, "get_message_by_id_and_message_id", fail)
    serve_run(server, *BEFORE, SENT, Message(content="Done."), Done())
    said = await start(a_pipe(server.url), __metadata__=metadata(tool_approval_resume="tools"))
    assert "The pipe failed" in said
    assert await answers(server) == []


async def test_a_continued_answer_counts_the_sources_that_it_has(server: ScriptedServer, open_webui: OpenWebUI) -> None:
    open_webui.message["sources"] = [{"source": {"name": "known"}, "document": [""], "metadata": [{"source": "known"}]}]
    server.on("POST", "runs", stream(frames(START, NEW, Message(content="See [source1]."), Done())))
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    updates = await answer(a_pipe(server.url), body={"messages": messages}, __metadata__=metadata())
    assert streamed_content(updates).endswith("See [2#source1].")


SENT_PICTURE = SENT.model_copy(update={"files": (PICTURE,)})
ALLOWED: dict[str, Any] = {"status": "completed", "approved": True, "text": "sent"}
OTHER_SOURCES = [{"document": ["x"], "metadata": []}, {"source": "text", "document": ["x"]}]


@pytest.mark.parametrize(
    ("card", "sources", "rest", "shown"),
    [
        (ALLOWED, [], [SENT, Message(content="Done.")], "Done."),
        (
            {"status": "rejected", "text": "Error: tool call rejected by user."},
            [],
            [ToolCallError(tool_call_id="c1", error="Not run.", code="denied"), Message(content="As you like.")],
            "As you like.",
        ),
        # Sources of other functions, in an unknown form, have numbers too.
        (ALLOWED, OTHER_SOURCES, [SENT, NEW, Message(content="Done [source1].")], "Done [3#source1]."),
        (
            ALLOWED,
            [],
            [SENT_PICTURE, Message(content="dra"), Rewind(), Message(content="Done.")],
            f"\n![]({PICTURE['url']})\n\nDone.",
        ),
    ],
    ids=["allowed", "refused", "other sources", "rewind"],
)
async def test_the_decision_is_sent_and_only_the_rest_is_streamed(
    server: ScriptedServer,
    open_webui: OpenWebUI,
    card: dict[str, Any],
    sources: list[Any],
    rest: list[Event],
    shown: str,
) -> None:
    open_webui.message["sources"] = sources
    open_webui.show("of an earlier run", **ALLOWED)
    open_webui.show(**card)
    serve_run(server, *BEFORE, *rest, Done())
    is_allowed = card is ALLOWED
    resumes = metadata(tool_approval_resume="tools" if is_allowed else "model")
    assert streamed_content(await answer(a_pipe(server.url), __metadata__=resumes)) == shown
    assert await answers(server) == [("approve:c1", is_allowed)]


@pytest.mark.parametrize(
    ("cards", "newest"),
    [
        (["show c1", "show c2", "end c1", "end c2"], ["c1", "c2"]),
        (["show c1", "end c1", "say Next", "show c2", "end c2"], ["c2"]),
        (["show c1", "miss c1", "say Next", "show c2", "miss c2"], ["c2"]),
    ],
)
async def test_files_of_each_approved_call_are_shown_once(
    server: ScriptedServer, open_webui: OpenWebUI, cards: list[str], newest: list[str]
) -> None:
    add: dict[str, Callable[[str], None]] = {
        "show": partial(open_webui.show, approved=True),
        "end": partial(open_webui.end, text="sent"),
        "miss": partial(open_webui.end, text='Error: Tool "send" not found.'),
        "say": open_webui.say,
    }
    for step in [*cards, "say "]:
        name, _, value = step.partition(" ")
        add[name](value)
    again = ToolCallStart(tool_call_id="c2", tool_name="send", tool_args={"to": "Bob"})
    ends = [
        ToolCallComplete(tool_call_id=one, result="sent", files=({"type": "file", "url": f"https://x/{one}"},))
        for one in ("c1", "c2")
    ]
    serve_run(server, *BEFORE, ends[0], Message(content="Next"), again, ends[1], Message(content="Done."), Done())
    text = streamed_content(await answer(a_pipe(server.url), __metadata__=metadata(tool_approval_resume="tools")))
    assert re.findall("https://x/(..)", text) == newest
    assert text.endswith("Done.")
    assert await answers(server) == [(f"approve:{one}", True) for one in newest]


async def test_pages_from_before_an_approval_stay_after_it_and_after_a_restart(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    found = FOUND.model_copy(update={"embeds": ("<p>1</p>",)})
    sent = SENT.model_copy(update={"embeds": ("<p>2</p>",)})
    before = [START, LOOK, found, SEND, ASKED, PARKED]
    server.on("POST", "runs", stream(frames(*before)))
    server.on("POST", "input", answer_json({}, 202))
    pipe = a_pipe(server.url)
    saved, _ = receive_pages(await answer(pipe, __metadata__=metadata()), [])
    assert saved == ["<p>1</p>"]
    open_webui.message["embeds"] = saved
    open_webui.show(status="completed", approved=True, text="sent")
    serve_run(server, *before, sent, Message(content="Done."), Done())
    after = await answer(pipe, __metadata__=metadata(tool_approval_resume="tools"))
    both = ["<p>1</p>", "<p>2</p>"]
    assert receive_pages(after, saved) == (both, both)
    left = await pipe.find_answer("ann", "chat", "message")
    restored = pipe.restore(left, {"id": "ann"}, METADATA, "callboard.assistant", None, None)
    assert receive_pages([update async for update in restored], saved) == (both, both)


async def test_an_unfinished_plan_from_before_an_approval_leaves_the_panel_at_the_end(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    open_webui.show(status="completed", approved=True, text="sent")
    plan = Plan(steps=(PlanStep(id="x", content="Send it", state="in_progress"),))
    serve_run(server, START, plan, *BEFORE[1:], SENT, Message(content="Done."), Done())
    updates = await answer(a_pipe(server.url), __metadata__=metadata(tool_approval_resume="tools"))
    events = [update["event"] for update in updates if "event" in update]
    panels = [event["data"]["tasks"] for event in events if event["type"] == "chat:message:tasks"]
    assert panels[-1:] == [[]]


async def test_a_call_whose_tool_open_webui_has_not_found_is_shown_with_what_is_missing(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    open_webui.show(status="failed", approved=True, text='Error: Tool "send" not found.')
    approved = ToolStatus(tool_call_id="c1", data=ToolStatusData(status="processing", message="approved"))
    subject = InputRequest(request_id="subject", kind="input", title="Subject?", tool_call_id="c1")
    begun = [*BEFORE, approved, subject]
    serve_run(server, *begun)
    answered = asyncio.Event()
    rest = frames(SENT, Message(content="Done."), Done(), first=len(begun) + 1)
    server.on("GET", "events", stream(frames(*begun), answered, rest))

    async def ask(dialog: dict[str, Any]) -> object:
        return {"action": "accept", "content": {"answer": dialog["data"]["message"]}}

    async def let_go() -> None:
        await server.seen("POST", "input", count=2)
        answered.set()

    given = metadata(tool_approval_resume="tools")
    updates, _ = await asyncio.gather(answer(a_pipe(server.url), __metadata__=given, __event_call__=ask), let_go())
    text = streamed_content(updates)
    assert "callboard install-pipe" in text
    [block] = tool_blocks(text)
    assert block.value("result") == "sent"
    assert text.endswith("Done.")
    assert await answers(server) == [("approve:c1", True), ("subject", "Subject?")]


@pytest.mark.parametrize("result", ["sent", ""])
async def test_the_tool_of_an_approved_card_returns_the_result_of_its_call(
    server: ScriptedServer, open_webui: OpenWebUI, result: str
) -> None:
    open_webui.show(status="in_progress", approved=True)
    serve_run(server, *BEFORE, SENT.model_copy(update={"result": result}), Message(content="Done."))
    # The server refuses an answer that was given before.
    server.on("POST", "input", error_response(404, "unknown_input", "it was answered"))
    given = metadata()
    await a_pipe(server.url).offer_approved({"id": "ann"}, given)
    assert given["params"]["tool_approval_mode"] == "ask"
    assert await given["tools"]["send"]["callable"]() == result
    assert await answers(server) == [("approve:c1", True)]


@pytest.mark.parametrize("card", [{"status": "in_progress"}, {"status": "queued"}])
async def test_the_tool_of_a_card_that_is_not_approved_asks_the_server_for_nothing(
    server: ScriptedServer, open_webui: OpenWebUI, card: dict[str, Any]
) -> None:
    open_webui.show(**card)
    given = metadata()
    await a_pipe(server.url).offer_approved({"id": "ann"}, given)
    assert await given["tools"]["send"]["callable"]() == "Error: Not run: the user has not approved it."
    assert server.requests == []


async def test_stop_of_an_approved_card_is_sent_again_until_the_server_accepts_it(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    open_webui.show(status="in_progress", approved=True)
    serve_run(server, *BEFORE)
    server.on("GET", "events", stream(frames(*BEFORE), end="hang"))
    server.on("POST", "cancel", hang_up, answer_json({}, 202))
    given = metadata()
    await a_pipe(server.url, resume_waits_seconds=(0.0, 0.01)).offer_approved({"id": "ann"}, given)
    task = asyncio.create_task(given["tools"]["send"]["callable"]())
    await server.seen("GET", "events")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.seen("POST", "cancel", 2)


async def test_a_server_that_is_away_is_named_on_the_approved_card(open_webui: OpenWebUI) -> None:
    open_webui.show(status="in_progress", approved=True)
    given = metadata()
    await a_pipe("http://127.0.0.1:9", resume_seconds=0).offer_approved({"id": "ann"}, given)
    said = await given["tools"]["send"]["callable"]()
    assert said.startswith("Error: Callboard could not run this call: Cannot reach the Callboard server")


@pytest.mark.parametrize(
    ("row", "state", "action"),
    [
        ({}, {}, {}),
        ({}, {"answered": ["approve:c1"]}, {}),
        ({}, {"answered": ["approve:c1"], "approved": ["approve:c1"]}, {"c1": "approve"}),
        ({"ended_at": 2.0}, {}, {"c1": "approve"}),
        ({"ended_at": 2.0, "error_code": "tool_failed"}, {}, {"c1": "approve"}),
        ({"ended_at": 2.0, "error_code": "denied"}, {}, {"c1": "reject"}),
        ({"ended_at": 2.0, "error_code": "cancelled"}, {}, {"c1": "reject"}),
    ],
)
async def test_the_card_of_a_call_that_was_answered_elsewhere_is_to_be_pressed(
    server: ScriptedServer, row: dict[str, Any], state: dict[str, Any], action: dict[str, str]
) -> None:
    call = {"role": "tool", "tool_call_id": "c1", "ended_at": None, "error_code": None} | row
    server.on("GET", "messages", answer_json({"messages": [{"message_id": "message", "run_id": "r", **call}]}))
    server.on("GET", "r", answer_json({"listened_to": False, **state}))
    waiting = [{"tool_call_id": one, "run_id": "r", "chat_id": "chat"} for one in ("c2", "c3")]
    other = {"tool_call_id": "c1", "run_id": "other", "chat_id": "other"}
    server.on("GET", "approvals", answer_json({"approvals": [*waiting, other], "next_cursor": None}))
    server.on("POST", "input", answer_json({}, 202))
    webui = OpenWebUI()
    webui.show("c0", **ALLOWED)
    webui.show("c1", status="pending")
    webui.show("c2", status="pending")
    # Open WebUI tells nobody of it while others are pending.
    webui.show("c3", status="rejected", text="Error: tool call rejected by user.")
    find = a_pipe(server.url).find_actions
    assert await find("ann", "chat", "message", webui.message["output"]) == action
    assert await answers(server) == [("approve:c3", False)]


async def test_cards_stay_while_the_server_is_away_and_are_not_looked_for_while_all_calls_wait(
    server: ScriptedServer,
) -> None:
    webui = OpenWebUI()
    webui.show("c1", status="pending")
    given = ("ann", "chat", "message", webui.message["output"])
    assert await a_pipe("http://127.0.0.1:9").find_actions(*given) == {}
    waiting = {"tool_call_id": "c1", "run_id": "r", "chat_id": "chat"}
    server.on("GET", "approvals", answer_json({"approvals": [waiting]}))
    assert await a_pipe(server.url).find_actions(*given) == {}
    [asked] = server.requests
    assert asked.query == "user_id=ann&limit=200"
