"""Approvals that wait: the pending card that the pipe makes, and the rest of the answer after it."""

import asyncio
import html
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

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
    ToolRequest,
    ToolStatus,
    ToolStatusData,
)
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish
from tests.frameworks.columns import FRAMEWORKS, PYDANTIC_AI, Column
from tests.frameworks.scenario import says
from tests.frameworks.toolbox import Toolbox
from tests.pipe.loader import PIPE, load_function, provide_open_webui, read_next_turn
from tests.pipe.owui_blocks import reduce_native, streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, answer_json, error_response, frames, hang_up, stream
from tests.pipe.test_files import receive_pages
from tests.pipe.test_stream import METADATA, a_pipe, answer, start
from tests.serving import serving

FILTER = load_function("callboard_filter.py")
START = RunStart(run_id="r", agent="assistant")
LOOK = ToolCallStart(tool_call_id="c0", tool_name="look")
FOUND = ToolCallComplete(tool_call_id="c0", result="a door")
LETTER = {"to": "ann@example.org", "body": "Dear Ann,\n\n- *one*\n  two"}
SEND = ToolCallStart(
    tool_call_id="c1", tool_name="send", tool_args=LETTER, label="Send an e-mail · ann@example.org", round_index=0
)
ASKED = InputRequest(
    request_id="approve:c1",
    kind="confirmation",
    title="Send an e-mail?",
    message="to: ann@example.org\nbody:\n    Dear Ann,\n    \n    - *one*\n      two",
    tool_call_id="c1",
)
PARKED = Parked(tool_call_ids=("c1",))
BEFORE = [START, Message(content="Look: "), LOOK, FOUND, SEND, ASKED, PARKED]
SENT = ToolCallComplete(tool_call_id="c1", tool_name="send", result="sent")
NEW = Source(source={"name": "new"}, metadata=({"source": "new", "source_number": 1},))
PICTURE = {"type": "image", "name": "p.png", "url": "data:image/png;base64,iVBORw0KGgo="}


class OpenWebUI:
    """The message of an answer in Open WebUI's database."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {"sources": [], "statusHistory": []}
        self.emitted: list[dict[str, Any]] = []

    @asynccontextmanager
    async def edit(self, _chat_id: str, _message_id: str) -> AsyncIterator[dict[str, Any]]:
        yield self.message

    async def make_emitter(self, _place: dict[str, Any], *, update_db: bool) -> Callable[[Any], Awaitable[None]]:
        async def emit(event: dict[str, Any]) -> None:
            self.emitted.append(event)

        assert not update_db
        return emit

    async def find(self, _chat_id: str, _message_id: str) -> dict[str, Any]:
        return self.message

    def show(self, call_id: str = "c1", text: str = "", **card: Any) -> None:
        """Show a pending card, with its output if there is a text."""
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "send", **card}
        self.message.setdefault("output", []).append(item)
        if text:
            self.end(call_id, text)

    def find_card(self, call_id: str) -> dict[str, Any]:
        """Return the item of a card."""
        return next(item for item in self.message["output"] if item["id"] == f"fc_{call_id}")

    def ask(self, call_id: str) -> None:
        """Add the question above a card."""
        self.say("to: Ann")
        self.message["output"][-1]["id"] = f"msg_question_{call_id}"

    def end(self, call_id: str, text: str) -> None:
        """Add the output of a card."""
        output = [{"type": "input_text", "text": text}]
        self.message["output"].append({"type": "function_call_output", "call_id": call_id, "output": output})

    def say(self, text: str) -> None:
        """Add a message item, as the pipe does, or, without a text, Open WebUI itself after the last output."""
        item = {"type": "message", "content": [{"type": "output_text", "text": text}]}
        self.message.setdefault("output", []).append(item)


@pytest.fixture
def open_webui(monkeypatch: pytest.MonkeyPatch) -> OpenWebUI:
    webui = OpenWebUI()
    chats = SimpleNamespace(get_message_by_id_and_message_id=webui.find, edit_message_output=webui.edit)
    socket = {"get_event_emitter": webui.make_emitter}
    provide_open_webui(monkeypatch, {"models.chats": {"Chats": chats}, "socket.main": socket})
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
    *_, text, question, card = reduce_native([update for update in updates if "output_index" in update])
    name = "Send an e-mail · ann@\u200bexample.\u200borg\u200b"
    assert card == {
        "type": "function_call",
        "id": "fc_c1",
        "call_id": "c1",
        "name": name,
        "provider_function": {"name": "send", "arguments": json.dumps(LETTER)},
        "arguments": json.dumps(LETTER),
        "status": "pending",
    }
    asked = question["content"][0]["text"]
    assert asked.replace("\u200b", "").split("  \n") == [
        "**to:** ann@example.org",
        "**body:** ",
        "\xa0\xa0\xa0\xa0Dear Ann,",
        "\xa0\xa0\xa0\xa0",
        "\xa0\xa0\xa0\xa0` - *one* `",
        "\xa0\xa0\xa0\xa0\xa0\xa0two",
    ]
    # Models do not take it for their own words.
    told = {"role": "assistant", "content": f"I write.\n{asked}\nDone."}
    assert (
        read_next_turn([told]) == FILTER.tell_calls([told]) == [{"role": "assistant", "content": "I write.\n\nDone."}]
    )
    # The card of Open WebUI is the only one of this call.
    [block] = tool_blocks(text["content"][0]["text"])
    assert block.value("result") == "a door"
    assert given["params"]["tool_approval_mode"] == "ask"
    assert list(given["tools"]) == [name]
    assert "Error" in await given["tools"][name]["callable"]()
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
SENT_ROW = SENT.model_copy(update={"result": '[{"a": 1}]'})
SENT_TABLE = PIPE.fold("Send an e-mail · ann@example.org: 1 row", "| a |\n| --- |\n| 1 |")
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
        (ALLOWED, [], [SENT_ROW, Message(content="Done.")], f"\n{SENT_TABLE}\n\nDone."),
    ],
    ids=["allowed", "refused", "other sources", "rewind", "table"],
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
    updates = await answer(a_pipe(server.url), __metadata__=resumes)
    assert streamed_content(updates) == shown
    [*_, last] = [one["event"]["data"] for one in updates if one.get("event", {}).get("type") == "status"]
    assert ("1 declined" in last["description"]) is not is_allowed
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


@pytest.fixture
def tools_of_open_webui(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get_updated_tool_function(function: Any, extra_params: dict[str, Any]) -> Any:
        return function

    provide_open_webui(monkeypatch, {"utils.tools": {"get_updated_tool_function": get_updated_tool_function}})


@pytest.mark.usefixtures("tools_of_open_webui")
async def test_a_tool_of_open_webui_runs_once_after_its_card_is_approved(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    open_webui.show(name="Send\u200b", status="in_progress", approved=True)
    wanted = ToolRequest(request_id="tool:c1", tool_call_id="c1", name="send", arguments=LETTER)
    # A call whose time was over before its tool gave a result; the tool must not start now.
    late = wanted.model_copy(update={"request_id": "tool:c0", "tool_call_id": "c0"})
    ended = ToolCallError(tool_call_id="c0", error="too late", code="timeout")
    before = [START, LOOK, late, ended, SEND, ASKED, PARKED, wanted, wanted]
    serve_run(server, *BEFORE)
    sent = asyncio.Event()
    server.on("GET", "events", stream(frames(*before), sent, frames(SENT, first=len(before) + 1)))
    ran: list[str] = []

    async def send(to: str, body: str) -> str:
        ran.append(f"{to}: {body}")
        sent.set()
        return "sent"

    spec = {"name": "send", "parameters": {"properties": {name: {} for name in LETTER}}}
    given = metadata(tool_approval_resume="tools", tools={"send": {"callable": send, "spec": spec}})
    await a_pipe(server.url).offer_approved({"id": "ann"}, given)
    assert await given["tools"]["Send\u200b"]["callable"]() == "sent"
    assert ran == [f"{LETTER['to']}: {LETTER['body']}"]


@pytest.mark.usefixtures("tools_of_open_webui")
async def test_a_tool_that_is_slower_than_another_one_of_its_run_runs_once(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    # Both calls were allowed in another place, so the server requests both tools at once.
    for name in ("c1", "c2"):
        open_webui.show(name, name=f"{name}\u200b", status="in_progress", approved=True)
    calls = [SEND.model_copy(update={"tool_call_id": one, "tool_name": one}) for one in ("c1", "c2")]
    wanted = [ToolRequest(request_id=f"tool:{one}", tool_call_id=one, name=one, arguments={}) for one in ("c1", "c2")]
    ends = [SENT.model_copy(update={"tool_call_id": one, "result": one}) for one in ("c1", "c2")]
    serve_run(server, START, *calls)
    head, is_sent, is_next = frames(START, *calls, *wanted), asyncio.Event(), asyncio.Event()
    first = stream(head, is_sent, frames(ends[0], first=6))
    server.on("GET", "events", first, stream(head, frames(ends[0], first=6), is_next, frames(ends[1], first=7)))

    async def answer_state(writer: Any) -> None:
        answered = [request_id for request_id, value in await answers(server) if request_id.startswith("tool:")]
        await answer_json({"listened_to": False, "answered": answered})(writer)

    server.on("GET", "r", answer_state)
    ran: list[str] = []

    async def run_first() -> str:
        ran.append("c1")
        is_sent.set()
        return "c1"

    async def run_second() -> str:
        ran.append("c2")
        await server.seen("POST", "input", 2)  # The approval of the first card, and the result of its tool.
        for _ in range(9):
            await pipe.find_answer("ann", "chat", "message")
        is_next.set()
        return "c2"

    tools = {name: {"callable": run, "spec": {"name": name}} for name, run in (("c1", run_first), ("c2", run_second))}
    given = metadata(tool_approval_resume="tools", tools=tools)
    pipe = a_pipe(server.url)
    await pipe.offer_approved({"id": "ann"}, given)
    assert await given["tools"]["c1\u200b"]["callable"]() == "c1"
    open_webui.find_card("c1")["status"] = "completed"
    assert await given["tools"]["c2\u200b"]["callable"]() == "c2"
    assert ran == ["c1", "c2"]


@pytest.mark.parametrize("card", [{"status": "in_progress"}, {"status": "queued"}])
async def test_the_tool_of_a_card_that_is_not_approved_asks_the_server_for_nothing(
    server: ScriptedServer, open_webui: OpenWebUI, card: dict[str, Any]
) -> None:
    open_webui.show(**card)
    given = metadata()
    await a_pipe(server.url).offer_approved({"id": "ann"}, given)
    assert await given["tools"]["send"]["callable"]() == "Error: Not run: the user has not approved it."
    assert server.requests == []


@pytest.mark.usefixtures("tools_of_open_webui")
async def test_stop_of_an_approved_card_ends_its_tool_and_is_sent_again_until_the_server_accepts_it(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    open_webui.show(name="Send\u200b", status="in_progress", approved=True)
    serve_run(server, *BEFORE)
    wanted = ToolRequest(request_id="tool:c1", tool_call_id="c1", name="send", arguments={})
    server.on("GET", "events", stream(frames(*BEFORE, wanted), end="hang"))
    server.on("POST", "cancel", hang_up, answer_json({}, 202))
    begun, ended = asyncio.Event(), asyncio.Event()

    async def send() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    given = metadata(tools={"send": {"callable": send, "spec": {"name": "send"}}})
    await a_pipe(server.url, resume_waits_seconds=(0.0, 0.01)).offer_approved({"id": "ann"}, given)
    task = asyncio.create_task(given["tools"]["Send\u200b"]["callable"]())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()
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
    server.on("GET", "approvals", answer_json({"approvals": waiting, "next_cursor": None}))
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
    assert asked.query == "user_id=ann&limit=200&chat_id=chat"


# --- What is written above a card, and onto cards when the answer goes on.

MARKDOWN = ["<img src=x onerror=alert(1)>", "<details>", "**", "__", "[a](http://b)", "[1]", "`", "```", "~~~", "# "]
MARKDOWN += [
    "- ",
    "1. ",
    "> ",
    "|a|b|",
    "---",
    "$$",
    "\\(",
    "&lt;",
    "\u202e",
    "\r",
    "\n",
    "  ",
    "to: ",
    "{{user}}",
    "://x.y",
    "www.x.y",
]


@given(st.lists(st.sampled_from(MARKDOWN) | st.text(max_size=5), max_size=8).map("".join))
@example("to: a\n    to: b")
@example("to: see www.x.y")
def test_any_text_above_a_card_is_drawn_as_it_is(text: str) -> None:
    drawn = MarkdownIt("gfm-like", {"linkify": False}).render(PIPE.draw_text(text))
    assert not re.search(r"<(?!/?(?:p|strong|code)>|br />)", drawn)
    plain = html.unescape(re.sub(r"<[^>]*>", "", drawn))
    plain = re.sub("[\u2060\u200b]", "", plain)
    lines, shown = (
        [line.replace("\xa0", " ").strip() for line in one.split("\n")] for one in (plain, PIPE.show_invisible(text))
    )
    assert "\n".join(lines).strip() == "\n".join(shown).strip()
    assert not re.search(r"\{\{|\[[0-9]|<details", PIPE.draw_text(text))
    assert not re.search(r"(?m)^[^`\n]*www\.", PIPE.draw_text(text))


DENIED = ToolCallError(tool_call_id="c1", error="Not run: the user refused it.", code="denied")
BY_EVE = ToolStatus(tool_call_id="c1", data=ToolStatusData(status="processing", message="approved in the inspector"))
NOT_BY_THE_USER = "Not run: a person in the inspector refused it, not the user."
PRESSED_DENY = {"status": "rejected", "text": "Error: tool call rejected by user."}
MAIL = "Send an e-mail · ann@example.org"
SENT_FAST = SENT.model_copy(update={"duration_ms": 1100})


@pytest.mark.parametrize(
    ("card", "ends", "name", "status", "text"),
    [
        (ALLOWED, [SENT_FAST], f"{MAIL} · 1.1 s", "completed", "sent"),
        (PRESSED_DENY, [DENIED], f"{MAIL} · declined", "rejected", "Declined: it was not run."),
        # A late answer.
        (PRESSED_DENY, [SENT_FAST], f"{MAIL} · answered elsewhere first · 1.1 s", "completed", "sent"),
        (PRESSED_DENY, [BY_EVE, SENT_FAST], f"{MAIL} · approved in the inspector · 1.1 s", "completed", "sent"),
        (
            ALLOWED,
            [DENIED.model_copy(update={"error": NOT_BY_THE_USER})],
            f"{MAIL} · answered elsewhere first · declined in the inspector",
            "rejected",
            "Declined: it was not run.",
        ),
        # A framework's call that ran after another answer.
        (ALLOWED | {"text": PIPE.RUNS_LATER}, [SENT_FAST], f"{MAIL} · 1.1 s", "completed", "sent"),
        (
            ALLOWED,
            [ToolCallError(tool_call_id="c1", error="the server is full", code="tool_failed")],
            MAIL,
            "failed",
            "Error: the server is full",
        ),
    ],
)
async def test_before_an_answer_goes_on_its_cards_say_what_has_become_of_their_calls(
    server: ScriptedServer,
    open_webui: OpenWebUI,
    card: dict[str, Any],
    ends: list[Event],
    name: str,
    status: str,
    text: str,
) -> None:
    open_webui.say("Look.")
    open_webui.ask("c1")
    open_webui.show(**card)
    serve_run(server, *BEFORE, *ends, Message(content="Done."))
    await a_pipe(server.url).offer_approved({"id": "ann"}, metadata(tool_approval_resume="model"))
    said, call, output = open_webui.message["output"]
    assert said["content"][0]["text"] == "Look."
    assert (call["name"], call["status"], call["approved"]) == (name, status, status != "rejected")
    assert (output["status"], output["output"][0]["text"]) == (status, text)
    assert open_webui.emitted == [
        {"type": "chat:completion", "data": {"output": open_webui.message["output"]}},
    ]
    assert await answers(server) == [("approve:c1", card is not PRESSED_DENY)]


async def test_while_other_cards_wait_a_denial_is_sent_and_their_questions_stay(
    server: ScriptedServer, open_webui: OpenWebUI
) -> None:
    for call_id, status in (("c1", "rejected"), ("c2", "in_progress"), ("c3", "pending")):
        open_webui.ask(call_id)
        open_webui.show(call_id, name=call_id, status=status, approved=status == "in_progress")
    open_webui.end("c1", "Error: tool call rejected by user.")
    serve_run(server, *BEFORE, DENIED, Parked(tool_call_ids=("c2", "c3")))
    given = metadata(tool_approval_resume="tools")
    await a_pipe(server.url).offer_approved({"id": "ann"}, given)
    assert await answers(server) == [("approve:c1", False)]
    assert list(given["tools"]) == ["c2", "c3"]
    items = open_webui.message["output"]
    questions = {item["id"]: item["content"][0]["text"] for item in items if PIPE.is_question(item)}
    assert questions == {
        "msg_question_c1": PIPE.QUESTION,
        "msg_question_c2": PIPE.QUESTION,
        "msg_question_c3": "to: Ann",
    }
    assert [item["name"] for item in items if PIPE.is_card(item)] == [f"{MAIL} · declined", "c2", "c3"]


@pytest.mark.parametrize("presses", [("Allow", "Allow"), ("Allow", "Deny"), ("Deny", "Allow")])
@pytest.mark.parametrize("framework", [FRAMEWORKS[0], PYDANTIC_AI], ids=lambda framework: framework.name)
async def test_two_calls_run_as_their_cards_were_answered_and_the_cards_say_so(
    framework: Column, presses: tuple[str, str], tmp_path: Path, open_webui: OpenWebUI
) -> None:
    toolbox = Toolbox()
    wipes = [call("wipe", f'{{"disk": "{disk}"}}', index=at, call_id=f"c{at}") for at, disk in enumerate("CD")]
    async with (
        OpenAIServer([chunks(*wipes, finish("tool_calls")), says("Done.")]) as model,
        framework.agent(model.base_url, ["wipe"], toolbox) as agent,
        serving(tmp_path, agent) as service,
    ):
        pipe = a_pipe(str(service.client.base_url), resume_seconds=0)
        ask = partial(answer, pipe, body={"model": "callboard.agent", "messages": [{"role": "user", "content": "Go."}]})
        updates = await ask(__user__={"id": "ann"}, __metadata__=metadata())
        open_webui.message["output"] = reduce_native([update for update in updates if "output_index" in update])
        for call_id, button in zip(("c0", "c1"), presses, strict=True):
            if button == "Allow":
                open_webui.find_card(call_id).update(status="in_progress", approved=True)
                given = metadata(tool_approval_resume="tools")
                await pipe.offer_approved({"id": "ann"}, given)
                said = await given["tools"][open_webui.find_card(call_id)["name"]]["callable"]()
                # pydantic-ai asks about both calls before it runs one.
                is_later = framework is PYDANTIC_AI and call_id == "c0"
                assert said == (PIPE.RUNS_LATER if is_later else f"{'CD'[call_id == 'c1']} is empty")
                open_webui.find_card(call_id).update(status="completed")
                open_webui.end(call_id, said)
            else:
                open_webui.find_card(call_id).update(status="rejected")
                open_webui.end(call_id, "Error: tool call rejected by user.")
        resumes = metadata(tool_approval_resume="model")
        await pipe.offer_approved({"id": "ann"}, resumes)
        rest = await ask(__user__={"id": "ann"}, __metadata__=resumes)
    assert streamed_content(rest) == "Done."
    assert toolbox.wiped == [disk for disk, button in zip("CD", presses, strict=True) if button == "Allow"]
    outputs = [item for item in open_webui.message["output"] if item["type"] == "function_call_output"]
    for disk, button, output in zip("CD", presses, outputs, strict=True):
        is_allowed = button == "Allow"
        card = open_webui.find_card(output["call_id"])
        name, status = (r"(under )?[\d.]+ s", "completed") if is_allowed else ("declined", "rejected")
        assert re.fullmatch(f"wipe · {disk} · {name}", card["name"])
        assert card["status"] == output["status"] == status
        text = f"{disk} is empty" if is_allowed else "Declined: it was not run."
        assert output["output"][0]["text"] == text


async def test_questions_go_and_cards_stay_as_they_are_if_the_server_is_away(open_webui: OpenWebUI) -> None:
    open_webui.ask("c1")
    open_webui.show(**PRESSED_DENY)
    before = open_webui.message["output"][1:]
    given = metadata(tool_approval_resume="model")
    await a_pipe("http://127.0.0.1:9", resume_seconds=0).offer_approved({"id": "ann"}, given)
    assert open_webui.message["output"] == before
