"""The recorder sends a valid run of the protocol, whatever an agent yields."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard._history import Turn, TurnRows
from callboard.calls.approval import AGREED
from callboard.calls.throttle import AT_ONCE, PER_SECOND
from callboard.errors import AgentError, RunLost
from callboard.redaction import Redaction
from callboard.runs.call_tracker import CallIds, CallTracker
from callboard.runs.files import RunFiles
from callboard.runs.inputs import Inputs
from callboard.runs.limits import MemoryBudget, RunMemory
from callboard.runs.log import EventLog
from callboard.runs.recorder import NOT_REMEMBERED, Ending, Recorder
from callboard.storage import Store
from callboard.storage.sql import database as database_module
from callboard.storage.sql import run_record
from callboard.storage.values import GivenAnswer, StoredRun
from callboard.text import storable
from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Reasoning,
    Rewind,
    RunStart,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
    Usage,
)
from tests.measuring import measuring_memory
from tests.runs.promises import check, read
from tests.storage.trouble import locked_by_another_program

START = RunStart(run_id="run", agent="demo")


def plain_recorder(
    log: EventLog, seen: Iterable[str] = (), rows: TurnRows | None = None, redaction: Redaction | None = None
) -> Recorder:
    ids = CallIds()
    ids.add(seen)
    calls = CallTracker(ids)
    inputs = Inputs("run", log, None, calls, timeout_seconds=0.0)
    return Recorder(log, calls, inputs, RunFiles("run"), rows, redaction)


async def make_recorder(
    log: EventLog, seen: Iterable[str] = (), redaction: Redaction | None = None, store: Store | None = None
) -> Recorder:
    """Return a recorder; its run is stored if there is a store."""
    if store is None:
        return plain_recorder(log, seen, redaction=redaction)
    stored_runs = store.stored_runs("server")
    run = await stored_runs.begin(StoredRun("run", "demo", "chat", "m", None))
    record = store.record(stored_runs, run, Turn("chat", "run", "m", None, None))
    assert record.writer
    log.store_in(record, RunFiles("run"))
    return plain_recorder(log, seen, record.writer.rows, redaction)


async def recorded(
    events: Sequence[Any],
    seen: Iterable[str] = (),
    ending: Ending | None = None,
    redaction: Redaction | None = None,
    store: Store | None = None,
    before: Callable[[int], Awaitable[None]] | None = None,
) -> list[tuple[int, Event]]:
    """Return the events that listeners get; `before` is awaited before each event, with its index."""
    log = EventLog()
    recorder = await make_recorder(log, seen, redaction, store)

    log.append(START)
    if store:
        log.write(TurnRows(Turn("chat", "run", "m", None, None)).begin("hi"))
    for number, event in enumerate(events):
        if before:
            await before(number)
        await recorder.record(event)
    if before:
        await before(len(events))
    await recorder.finish(ending or Ending(recorder.terminal or Done()))
    return read(b"".join([chunk async for chunk in log.tail()]))


async def shown(events: Sequence[Any], **options: Any) -> list[Event]:
    return [event for _, event in await recorded(events, **options)]


def start(call_id: str, name: str = "tool", args: dict[str, Any] | str = "{}") -> ToolCallStart:
    return ToolCallStart(tool_call_id=call_id, tool_name=name, tool_args=args)


def complete(call_id: str, result: str = "ok") -> ToolCallComplete:
    return ToolCallComplete(tool_call_id=call_id, tool_name="tool", result=result)


def status(call_id: str) -> ToolStatus:
    return ToolStatus(tool_call_id=call_id, data=ToolStatusData(status="processing", message="…", progress=50))


call_ids = st.sampled_from(["", "a", "b", "call_0", " ", "\n", "x" * 600])
nasty = st.text() | st.sampled_from(["\ud800", "\u2028", "</details>", "\0", "{}", '{"a": NaN}', "[" * 3000])
any_event = st.one_of(
    st.builds(Message, content=nasty),
    st.builds(Reasoning, content=nasty),
    st.builds(Status, content=nasty),
    st.builds(Usage, total_tokens=st.integers(0, 9)),
    st.builds(Source, source=st.just({"name": "x"})),
    st.builds(ToolCallArgsDelta, tool_call_id=call_ids, delta=nasty),
    st.builds(start, call_ids, nasty, nasty | st.dictionaries(st.text(), st.floats() | st.text())),
    st.builds(status, call_ids),
    st.builds(complete, call_ids, nasty),
    st.builds(ToolCallError, tool_call_id=call_ids, error=nasty),
    st.just(START),
)


@given(st.lists(any_event, max_size=30), st.sampled_from([None, Done(finish_reason="length"), Error(message="no")]))
@example([ToolCallArgsDelta(tool_call_id="", delta="{}"), start(""), start("")], None)
def test_any_events_in_any_order_give_a_valid_run(events: list[Event], last: Event | None) -> None:
    seen = frozenset({"a", "call_0"})
    numbered = asyncio.run(recorded([*events, last] if last else events, seen=seen))
    check(numbered, seen)
    said = "".join(event.content for event in events if isinstance(event, Message))
    heard = "".join(event.content for _, event in numbered if isinstance(event, Message))
    assert heard == storable(said)


@pytest.mark.parametrize("call_id", ["call_0", "call_x_of_another_server", "call_f_of_another_server"])
async def test_id_used_earlier_or_by_another_server_is_replaced_in_every_event_of_the_call(call_id: str) -> None:
    events = await shown(
        [
            ToolCallArgsDelta(tool_call_id=call_id, tool_name="tool", delta="{"),
            start(call_id),
            status(call_id),
            complete(call_id),
        ],
        seen={"call_0"},
    )
    ids = {event.tool_call_id for event in events if hasattr(event, "tool_call_id")}
    assert len(ids) == 1
    assert call_id not in ids


async def test_id_claimed_before_the_start_is_kept() -> None:
    log = EventLog()
    recorder = plain_recorder(log, {"used"})
    log.append(START)
    first = recorder.calls.claim("fresh")
    second = recorder.calls.claim("used")
    assert first == "fresh"
    assert second != "used"
    for call_id in (first, second):
        await recorder.record(start(call_id))
        await recorder.record(complete(call_id))
    await recorder.finish(Ending(Done()))
    numbered = read(b"".join([chunk async for chunk in log.tail()]))
    assert [event.tool_call_id for _, event in numbered if isinstance(event, ToolCallStart)] == [first, second]


async def test_fast_text_is_joined_and_stays_in_order_with_other_events() -> None:
    events = await shown(
        [*(Message(content=char) for char in "abc"), start("x"), complete("x"), *(Message(content=c) for c in "def")]
    )
    assert [event.content for event in events if isinstance(event, Message)] == ["a", "bc", "def"]
    assert [event.type for event in events][1:5] == ["message", "message", "tool_call_start", "tool_call_complete"]


async def test_arguments_are_not_sent_if_the_call_starts_before_them() -> None:
    pieces = [("a", "{"), ("b", "hun"), ("c", "hun"), ("b", "ter2"), ("c", "ter2")]
    written = [ToolCallArgsDelta(tool_call_id=call_id, tool_name="tool", delta=piece) for call_id, piece in pieces]
    calls = [*written, start("a"), start("b"), complete("a"), complete("b")]
    events = await shown(calls, redaction=Redaction(["hunter2"]))
    assert [
        (event.type, event.tool_call_id, getattr(event, "delta", ""))
        for event in events[1:-1]
        if hasattr(event, "tool_call_id")
    ] == [
        ("tool_call_args_delta", "a", "{"),
        ("tool_call_start", "a", ""),
        ("tool_call_start", "b", ""),
        ("tool_call_complete", "a", ""),
        ("tool_call_complete", "b", ""),
        ("tool_call_args_delta", "c", "[secret]"),
    ]


async def test_joined_text_is_sent_without_another_event() -> None:
    log = EventLog()
    recorder = plain_recorder(log)
    log.append(START)
    await recorder.record(Message(content="at once"))
    await recorder.record(Message(content=" a little later"))
    chunks = log.tail(after=2)
    assert read(await anext(chunks)) == [(3, Message(content=" a little later"))]
    await recorder.finish(Ending(Done()))


def remaining_text(events: Sequence[Event]) -> str:
    """Return the text that remains after all rewinds."""
    kept = ""
    draft = ""
    for event in events:
        match event:
            case Message(content=content):
                draft += content
            case Rewind():
                draft = ""
            case ToolCallStart() | ToolCallComplete() | ToolCallError():
                kept = kept + draft
                draft = ""
            case _:
                pass
    return kept + draft


drafts = st.one_of(
    st.builds(Message, content=nasty),
    st.builds(Reasoning, content=nasty),
    st.builds(Status, content=nasty),
    st.builds(ToolCallArgsDelta, tool_call_id=call_ids, delta=nasty),
    st.just(Rewind()),
)


@given(st.lists(st.lists(drafts, max_size=6), min_size=1, max_size=5))
def test_rewind_removes_text_since_the_last_start_or_end_of_a_call(rounds: list[list[Event]]) -> None:
    events = [event for number, step in enumerate(rounds) for event in (start(f"n{number}"), *step)]
    sent = [event for _, event in asyncio.run(recorded(events))]
    assert remaining_text(sent) == storable(remaining_text(events))


async def test_text_before_a_rewind_is_not_stored(store: Store) -> None:
    draft = Message(content="Half an answer")
    whole = Message(content="A whole answer.")
    call = [Message(content="Let me look. "), start("a"), Message(content="Meanwhile: "), complete("a")]
    events = await shown([draft, Rewind(), *call, draft, Rewind(), draft, Rewind(), whole], store=store)
    assert remaining_text(events) == "Let me look. Meanwhile: A whole answer."
    kept = [message.content for message in await store.chats(None).messages("chat") if message.role == "assistant"]
    assert kept == ["Let me look. ", "Meanwhile: A whole answer."]


async def test_rewind_is_sent_only_if_its_text_was_sent() -> None:
    # A status makes the recorder send the delayed text; without it, the rewind comes before the text is sent.
    seen = await shown([start("a"), complete("a"), Message(content="Half"), Status(content="Checking"), Rewind()])
    assert [event.type for event in seen][-4:] == ["message", "status", "rewind", "done"]
    unseen = await shown([start("a"), complete("a"), Message(content="Half"), Rewind(), Message(content="Whole.")])
    assert [event.type for event in unseen][-3:] == ["tool_call_complete", "message", "done"]


async def test_rewind_removes_text_held_back_as_the_beginning_of_a_secret() -> None:
    draft = Message(content="The key is hunt")
    events = await shown([draft, Rewind(), Message(content="No key.")], redaction=Redaction(["hunter2"]))
    assert remaining_text(events) == "No key."


@pytest.mark.parametrize("message", AGREED)
async def test_a_status_that_lets_a_tool_run_is_stored_on_return(store: Store, message: str) -> None:
    log = EventLog()
    recorder = await make_recorder(log, store=store)
    await recorder.record(start("a"))
    await recorder.record(ToolStatus(tool_call_id="a", data=ToolStatusData(status="processing", message=message)))
    assert log.has_stored_all
    await recorder.finish(Ending(Done()))


async def test_large_result_is_cut_in_the_event_and_whole_in_the_store(store: Store) -> None:
    result = "ä\x01" * 200_000
    ended = complete("a", result).model_copy(update={"duration_ms": 10**30})
    events = await shown([start("a"), ended, Message(content=result)], store=store)
    [sent] = [event for event in events if isinstance(event, ToolCallComplete)]
    assert sent.truncated
    assert sent.result_chars == len(result)
    assert result.startswith(sent.result)
    assert 60_000 < len(sent.result) * 6 <= 65_536
    assert "".join(event.content for event in events if isinstance(event, Message)) == result
    kept = await store.chats(None).tool_call("chat", "a")
    # A duration that no column can hold is stored as the longest.
    assert (kept.result, kept.duration_ms) == (result, 2**31 - 1)


async def test_arguments_are_sent_as_an_object_and_stored_as_the_same_text(store: Store) -> None:
    raw = '{ "b": 1,  "a": "\\u00e4" }'
    events = await shown([start("a", args=raw), start("b", args="{broken"), start("c", args="")], store=store)
    assert [event.tool_args for event in events if isinstance(event, ToolCallStart)] == [
        {"b": 1, "a": "ä"},
        "{broken",
        {},
    ]
    kept = [call.arguments for call in await store.chats(None).timeline("chat")]
    assert kept == [raw, "{broken", ""]


endless: dict[str, Any] = {}
endless["again"] = endless


@pytest.mark.parametrize(
    ("yielded", "why"), [("hello", "yielded str"), (start("a", args=endless), "nested too deeply")]
)
async def test_object_that_is_no_event_or_contains_itself_raises_agent_error(yielded: object, why: str) -> None:
    with pytest.raises(AgentError, match=why):
        await recorded([yielded])


STEPS = [start("a"), complete("a"), start("b"), Message(content="Done.")]


@pytest.mark.parametrize("locked_from", [0, 2, len(STEPS)])
async def test_failing_database_is_reported_once_and_the_run_continues(
    store: Store, database: Path, locked_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "PATIENCE_SECONDS", 0.05)
    async with AsyncExitStack() as lock:

        async def lock_database(number: int) -> None:
            if number == locked_from:
                monkeypatch.setattr(run_record, "PATIENCE_SECONDS", 0.1)
                await lock.enter_async_context(locked_by_another_program(database))

        numbered = await recorded(STEPS, store=store, before=lock_database)
    check(numbered)
    events = [event for _, event in numbered]
    assert [event.content for event in events if isinstance(event, Status)] == [NOT_REMEMBERED]
    assert [event.type for event in events if not isinstance(event, Status)] == [
        "run_start",
        "tool_call_start",
        "tool_call_complete",
        "tool_call_start",
        "message",
        "tool_call_error",
        "done",
    ]


async def test_secret_in_a_tool_error_is_redacted_in_events_and_store(store: Store) -> None:
    failed = ToolCallError(tool_call_id="a", error="401 for key hunter2")
    events = await shown([start("a"), failed], store=store, redaction=Redaction(["hunter2"]))
    [record] = (await store.chats(None).history("chat")).calls
    assert record.result == "Error: 401 for key [secret]"
    assert not [event for event in events if "hunter2" in event.model_dump_json()]


async def test_of_a_thousand_statuses_the_first_the_last_and_ten_a_second_are_sent() -> None:
    def report(number: int) -> ToolStatus:
        return ToolStatus(tool_call_id="c", data=ToolStatusData(status="processing", message=str(number)))

    loop = asyncio.get_running_loop()
    began = loop.time()
    events = await shown([start("c"), *map(report, range(1000)), complete("c")])
    numbers = [int(event.data.message) for event in events if isinstance(event, ToolStatus)]
    assert (numbers[0], numbers[-1]) == (0, 999)
    assert numbers == sorted(numbers)
    assert len(numbers) <= AT_ONCE + PER_SECOND * (loop.time() - began) + 1


async def test_last_status_is_sent_without_another_event() -> None:
    log = EventLog()
    recorder = plain_recorder(log)
    log.append(START)
    await recorder.record(start("c"))
    for number in range(2 * AT_ONCE):
        await recorder.record(ToolStatus(tool_call_id="c", data=ToolStatusData(status="s", message=str(number))))
    # After the run's and the call's start and the first ten.
    [(_, late)] = read(await anext(log.tail(after=2 + AT_ONCE)))
    assert isinstance(late, ToolStatus)
    assert late.data.message == str(2 * AT_ONCE - 1)
    await recorder.finish(Ending(Done()))


@pytest.mark.parametrize("ending", [None, Ending(Done(finish_reason="cancelled"))], ids=["released", "ended"])
async def test_an_agent_that_continues_after_its_run_was_released_or_has_ended_starts_no_tool(
    ending: Ending | None,
) -> None:
    recorder = plain_recorder(EventLog())
    await (recorder.finish(ending) if ending else recorder.stop_accepting())
    with pytest.raises(RunLost, match="takes no more events"):
        await recorder.record(ToolCallStart(tool_call_id="a", tool_name="sell", tool_args={}))


async def test_text_of_an_answer_is_counted_without_its_pieces_until_its_row_is_made() -> None:
    turn = Turn("chat", "run", None, None, None)
    for rows, copies in ((TurnRows(turn), 2), (None, 1)):
        budget = MemoryBudget()
        log = EventLog(RunMemory(budget))
        recorder = plain_recorder(log, rows=rows)
        with measuring_memory() as memory:
            for number in range(10_000):
                await recorder.record(Message(content=f"{number:05}"))
            await recorder.record(Status(content="The text before is sent."))
        # An event and, for a stored run, the text.
        assert copies * 50_000 < budget.used_bytes < copies * 50_000 + 40_000
        assert memory.kept_bytes < 300_000
        await recorder.record(ToolCallStart(tool_call_id="a", tool_name="search"))
        assert budget.used_bytes < 90_000


async def test_an_answer_that_is_read_again_does_not_answer_a_later_question_with_its_id() -> None:
    inputs = Inputs("run", EventLog(), None, CallTracker(CallIds()), timeout_seconds=60.0)
    question = InputRequest(request_id="q", kind="confirmation", title="Delete it?")
    assert inputs.open(question)
    waiting = asyncio.create_task(inputs.wait(question))
    await inputs.answer("q", GivenAnswer(True))
    assert await waiting is True
    inputs.accept({"q": GivenAnswer(True)})
    assert inputs.open(question)
