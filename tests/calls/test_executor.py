"""Whatever a tool does, out comes a result or a ToolError."""

import asyncio
import math
import threading
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from callboard.calls import StatusReport, Tool, ToolContext, ToolResult, report_status, tool
from callboard.calls.tool import as_result
from callboard.errors import ToolError, ToolTimeout
from callboard_protocol import Source
from tests.calls.conftest import Stage

PNG = b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(20)).decode()
ByHand = Callable[..., Tool]


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class SoldOut(ToolError):
    code = "sold_out"


class UnreadableToolError(SoldOut):
    def __str__(self) -> str:
        raise ValueError("no words")


async def test_plain_and_async_functions_and_those_that_return_awaitables_all_run(
    stage: Stage, by_hand: ByHand
) -> None:
    async def slow(x: int) -> int:
        return x

    class Callable_:  # noqa: N801 - not the one of typing
        async def __call__(self, x: int) -> int:
            return x

    for function in (slow, lambda x: x, lambda x: slow(x), Callable_()):
        assert (await stage.run(by_hand(function), x=5)).text == "5"


async def test_result_of_a_generator_is_the_list_of_its_values(stage: Stage, by_hand: ByHand) -> None:
    ended: list[str] = []

    @tool
    async def counts(x: int) -> AsyncIterator[int]:
        """Counts."""
        for number in range(x):
            yield number
        ended.append("async")

    def plain(x: int) -> Iterator[int]:
        assert threading.current_thread() is not threading.main_thread()
        yield from range(x)
        ended.append("plain")

    for generator in (by_hand(plain), by_hand(lambda x: counts(x))):
        assert (await stage.run(generator, x=3)).text == "[0,1,2]"
    assert ended == ["plain", "async"]


async def test_plain_functions_run_in_threads_and_do_not_block_the_event_loop(stage: Stage, by_hand: ByHand) -> None:
    together = threading.Barrier(2, timeout=10)
    meets = by_hand(lambda: together.wait() * 0)
    assert [result.text for result in await asyncio.gather(stage.run(meets), stage.run(meets))] == ["0", "0"]


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (StopIteration("s"), "RuntimeError: coroutine raised StopIteration"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (BaseExceptionGroup("two", [KeyboardInterrupt()]), "BaseExceptionGroup: two (1 sub-exception)"),
        (Unreadable(), "Unreadable"),
        (TimeoutError("net"), "TimeoutError: net"),
        (ValueError("half \ud83d"), "ValueError: half \ufffd"),
    ],
)
@pytest.mark.parametrize("threaded", [False, True])
async def test_exception_of_a_tool_becomes_a_tool_error_with_its_class_and_message(
    stage: Stage, by_hand: ByHand, raised: BaseException, message: str, threaded: bool
) -> None:
    def plain() -> None:
        raise raised

    async def coroutine() -> None:
        raise raised

    with pytest.raises(ToolError) as caught:
        await stage.run(by_hand(plain if threaded else coroutine))
    assert (caught.value.code, str(caught.value)) == ("tool_failed", message)


@pytest.mark.parametrize(
    ("raised", "message"),
    [(SoldOut("No seats left."), "No seats left."), (UnreadableToolError(), "UnreadableToolError")],
)
async def test_tool_error_keeps_its_message_and_code(
    stage: Stage, by_hand: ByHand, raised: ToolError, message: str
) -> None:
    async def fails() -> None:
        raise raised

    with pytest.raises(ToolError) as caught:
        await stage.run(by_hand(fails))
    assert (str(caught.value), caught.value.code) == (message, "sold_out")


async def test_tool_that_cancels_itself_gives_an_error_and_the_run_continues(stage: Stage, by_hand: ByHand) -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ToolError, match="cancelled itself"):
        await stage.run(by_hand(gives_up))


async def test_a_tool_out_of_its_own_time_is_cancelled_and_its_reports_are_passed_on(
    stage: Stage, by_hand: ByHand
) -> None:
    cancelled = asyncio.Event()

    async def hangs(context: ToolContext) -> None:
        await context.status("processing")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ToolTimeout, match=r"by_hand did not end within 0\.05 s"):
        await stage.run(by_hand(hangs, timeout_seconds=0.05), 3600)
    await cancelled.wait()
    assert stage.reports == [StatusReport("processing")]


async def test_tool_that_ignores_its_cancellation_is_not_waited_for(stage: Stage, by_hand: ByHand) -> None:
    release = asyncio.Event()
    ended = asyncio.Event()

    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        raise ValueError("nobody listens any more")

    with pytest.raises(ToolTimeout):
        await stage.run(by_hand(stubborn), 0.01)
    release.set()
    await ended.wait()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ({"a": [1, None], "ü": "ö"}, '{"a":[1,null],"ü":"ö"}'),
        (math.nan, "null"),
        (("x", {1}), '["x",[1]]'),
        ("half \udc00", "half \ufffd"),
        (ToolResult("shown", embeds=("<p>",)), "shown"),
        (b64decode(PNG), PNG),
        (b"text", '"text"'),
    ],
)
def test_any_return_value_becomes_text(value: object, text: str) -> None:
    assert as_result(value).text == text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "Unable to serialize"),
        (ToolResult(5), "text must be a string"),  # type: ignore[arg-type] # wrong on purpose
        (ToolResult("t", files=("not a dict",)), "files has 'not a dict': give"),  # type: ignore[arg-type] # wrong on purpose
        (ToolResult("t", files={"type": "image", "url": "data:,"}), "files has 'type': give"),  # type: ignore[arg-type] # wrong on purpose
        (ToolResult("t", files=[{"type": "image_url", "image_url": {"url": "data:,"}}]), "the url is a data: URL"),
        (ToolResult("t", files=[{"type": "image", "url": "plot.png"}]), "the url is a data: URL"),
        (ToolResult("t", embeds="one string"), "embeds must be a sequence"),
        (ToolResult("t", sources=({"no": "source"},)), "Field required"),
    ],
)
async def test_a_value_that_cannot_be_a_result_is_an_error(
    stage: Stage, by_hand: ByHand, value: object, words: str
) -> None:
    with pytest.raises(ToolError, match=f"(?s)cannot be its result: .*{words}"):
        await stage.run(by_hand(lambda: value))


async def test_files_embeds_and_sources_come_with_the_result(stage: Stage, by_hand: ByHand) -> None:
    file = {"type": "image", "url": "https://example.org/a.png"}
    source = {"source": {"name": "Folio"}, "document": ["To be"], "metadata": [{"page": 3}]}
    result = await stage.run(by_hand(lambda: ToolResult("t", [file], ["<p>"], [source])))
    assert result == ToolResult("t", (file,), ("<p>",), (Source(**source),))  # type: ignore[arg-type] # wrong on purpose


async def test_exception_of_a_validator_is_an_error_of_the_call(stage: Stage, by_hand: ByHand) -> None:
    def broken(arguments: Any) -> dict[str, Any]:
        raise RuntimeError("oops")

    with pytest.raises(ToolError, match="RuntimeError: oops"):
        await stage.run(by_hand(print, read_arguments=broken))


async def test_a_tool_is_given_the_context_of_its_call(stage: Stage, by_hand: ByHand) -> None:
    def who(me: ToolContext, x: int) -> str:
        assert me.user is not None
        return f"{me.tool_call_id} {me.tool_name} {me.chat_id} {me.user.id} {x}"

    assert (await stage.run(by_hand(who), x=1)).text == "call_1 by_hand chat_1 u1 1"


async def test_progress_is_reported_from_contexts_async_tools_and_threads(stage: Stage, by_hand: ByHand) -> None:
    async def deep(context: ToolContext) -> None:
        await context.status("processing", "one", progress=10)
        await asyncio.to_thread(report_status, "processing", "two", 300)

    def threaded() -> None:
        report_status("processing", "three", -math.inf)

    await stage.run(by_hand(deep))
    await stage.run(by_hand(threaded))
    assert stage.reports == [
        StatusReport("processing", "one", 10),
        StatusReport("processing", "two", 100),
        StatusReport("processing", "three", None),
    ]


async def test_reports_of_concurrent_calls_go_to_their_own_call(by_hand: ByHand) -> None:
    both = asyncio.Barrier(2)

    async def speaks(word: str) -> None:
        await both.wait()
        report_status(word)
        await both.wait()
        await asyncio.to_thread(report_status, word)

    stages = Stage(), Stage()
    await asyncio.gather(stages[0].run(by_hand(speaks), word="a"), stages[1].run(by_hand(speaks), word="b"))
    assert [[report.status for report in one.reports] for one in stages] == [["a", "a"], ["b", "b"]]


async def test_reports_after_the_end_of_a_call_are_ignored(stage: Stage, by_hand: ByHand) -> None:
    later = asyncio.Event()
    said = asyncio.Event()
    left_behind: list[asyncio.Task[None]] = []

    async def mutters() -> None:
        await later.wait()
        report_status("too late")
        said.set()

    async def leaves() -> None:
        left_behind.append(asyncio.create_task(mutters()))

    await stage.run(by_hand(leaves))
    later.set()
    await said.wait()
    assert stage.reports == []
