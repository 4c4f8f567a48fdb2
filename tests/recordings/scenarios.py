"""The recorded runs: every kind of answer, call, failure and ending, each a scenario by its name."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from callboard import Tool, ToolContext, ToolResult, tool
from callboard.agents import AgentLike, RunContext
from callboard_protocol import (
    Done,
    Error,
    Event,
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
from tests.fakes.openai_server import Answer, Body, call, chunks, finish, text, usage
from tests.recordings.stage import Scenario, Stage
from tests.serving import ScriptedAgent

NASTY = (
    "</details><img src=x onerror=alert(1)> \"double\" 'single' ```fence\nU+2028:\u2028 U+0085:\u0085 {{user}} "
    '<details type="tool_calls" done="false"> &lt;b&gt; 🎭 ‮ \\u0000 [source1]'
)
PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = f"data:application/pdf;base64,{'A' * 100_000}"


# --- What a model answers -------------------------------------------------------------------------------------------


def says(content: str, reason: str | None = "stop") -> Answer:
    """Return an answer of text, in pieces."""
    return chunks(*(text(content[at : at + 7]) for at in range(0, len(content), 7)), finish(reason), usage(10, 5))


def calls(*wanted: tuple[str, Any], before: str = "", ids: Sequence[str | None] = ("a", "b", "c", "d")) -> Answer:
    """Return an answer of calls, each a tool's name and its arguments, streamed in pieces."""
    parts: list[Body] = [text(before)] if before else []
    for index, (name, arguments) in enumerate(wanted):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        parts.append(call(name, "", index=index, call_id=ids[index]))
        parts += [call(arguments=written[at : at + 9], index=index) for at in range(0, len(written), 9)]
    return chunks(*parts, finish("tool_calls"), usage(20, 7))


ADD = ("add", {"a": 1, "b": 2})


# --- The tools ------------------------------------------------------------------------------------------------------


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
async def hang() -> str:
    """Never returns."""
    await asyncio.Event().wait()
    return "never"


@tool
async def paint(context: ToolContext, what: str) -> ToolResult:
    """Paints."""
    await context.status("processing", "Sketching", progress=10)
    await context.status("processing", f"Painting {what}", progress=55.5)
    await context.status("finished")
    return ToolResult(
        f"{what}, painted",
        files=({"type": "image", "url": PNG}, {"type": "file", "url": PDF, "name": "plan.pdf"}),
        embeds=("<p>A page</p>", "https://example.org/"),
    )


@tool
async def read_all(chars: int) -> str:
    """Gives a long text."""
    return ("All the world's a stage. ä\u2028" * (chars // 20))[:chars]


@tool
async def echo(what: str) -> str:
    """Gives back what it is given."""
    return what


@tool(requires_confirmation=True)
async def buy(thing: str, euros: int = 1) -> str:
    """Buys something."""
    return f"bought {thing} for {euros}"


@tool(read_only=True)
async def look_up(context: ToolContext, query: str) -> ToolResult:
    """Looks something up."""
    number = context.sources.next()
    url = f"https://{query}.example"
    snippet = f"All of {query}."
    about = {"source": url, "name": query, "source_number": number}
    source = Source(source={"name": query, "url": url}, document=(snippet,), metadata=(about,))
    item = {"source_number": number, "title": query, "url": url, "snippet": snippet}
    return ToolResult(data=[item], sources=(source,))


def tools(*given: Tool) -> Callable[[], Sequence[Tool]]:
    """Return what gives these tools."""
    return lambda: given


def racing_tools() -> Sequence[Tool]:
    """Return two tools of which the one that starts first ends last."""
    second_has_ended = asyncio.Event()

    @tool
    async def slow(word: str) -> str:
        """Waits for the other."""
        await second_has_ended.wait()
        # The other's end is told first; of that no tool hears.
        await asyncio.sleep(0.05)
        return word

    @tool
    async def quick(word: str) -> str:
        """Does not wait."""
        second_has_ended.set()
        return word

    return slow, quick


# --- Agents that yield their events themselves ----------------------------------------------------------------------


def scripted(*events: Any, failure: Exception | None = None) -> Callable[[], AgentLike]:
    """Return what makes an agent that yields these events, and then raises."""

    async def script(_: RunContext) -> AsyncIterator[Event]:
        for event in events:
            yield event
        if failure:
            raise failure

    return lambda: ScriptedAgent(script)


def start(call_id: str, name: str = "look", args: dict[str, Any] | str = "{}", **fields: Any) -> ToolCallStart:
    """Return the start of a call."""
    return ToolCallStart(tool_call_id=call_id, tool_name=name, tool_args=args, **fields)


def complete(call_id: str, result: str = "seen", **fields: Any) -> ToolCallComplete:
    """Return a call's good end."""
    return ToolCallComplete(tool_call_id=call_id, result=result, **fields)


def step(call_id: str, message: str, status: str = "processing", **fields: Any) -> ToolStatus:
    """Return a step of a call."""
    return ToolStatus(tool_call_id=call_id, data=ToolStatusData(status=status, message=message, **fields))


SLOPPY = (
    RunStart(run_id="mine", agent="mine"),
    Message(content=""),
    ToolCallArgsDelta(tool_call_id="x", tool_name="look", delta='{"at"'),
    ToolCallArgsDelta(tool_call_id="y", tool_name="look", delta="{"),
    ToolCallArgsDelta(tool_call_id="x", tool_name="look", delta=': "it"}'),
    start("x", args='{"at": "it"}'),
    ToolCallArgsDelta(tool_call_id="x", delta="too late"),
    step("unknown", "nobody's"),
    step("x", "half", progress=50),
    complete("x", "first"),
    step("x", "too late"),
    complete("x", "again"),
    ToolCallError(tool_call_id="x", error="and again"),
    start("x", args="not JSON"),
    start("", name="nameless", args={"float": float("nan"), "nested": {"list": [1, None]}}),
    complete("", "it has an id now"),
    start("\n"),
    start("z" * 600, stoppable=False),
    ToolCallError(tool_call_id="never started", tool_name="lost", error="no such tool", code="unknown_tool"),
    complete("y", "y ended without a start", duration_ms=12),
    Message(content="\ud800 and \0 are no text"),
    start("surrogate", name="na\0me", args='{"a": "\\ud800"}'),
    complete("surrogate", "\udfff\0"),
    Usage(input_tokens=1, output_tokens=2, total_tokens=3, cached_tokens=1, reasoning_tokens=1),
    Message(content="The end."),
    Done(finish_reason="stop"),
    Message(content="after the end"),
)

HESITATION = (
    Reasoning(content="Hm."),
    Message(content="Let me look."),
    start("a"),
    Message(content=" While it runs:"),
    complete("a", "a fruit"),
    Message(content="Half an answer"),
    ToolCallArgsDelta(tool_call_id="b", tool_name="look", delta='{"half'),
    # It sends what is held to be joined: a draft that nobody has seen is taken back without a word.
    Status(content="Checking"),
    Rewind(),
    Rewind(),
    Reasoning(content="So."),
    Message(content="A whole answer."),
)

SECRETIVE = (
    Reasoning(content="I know hunter2-"),
    Message(content="The key is key-of-the-"),
    Message(content="endpoint, as you know; or key-of-the-end"),
    start("a", args={"key": "key-of-the-endpoint", "list": ["key-of-the-endpoint"]}),
    step("a", "with key-of-the-endpoint"),
    complete(
        "a", "key-of-the-endpoint", files=({"type": "file", "url": "https://x.example/?key=key-of-the-endpoint"},)
    ),
    Source(source={"name": "key-of-the-endpoint"}, document=("of key-of-the-endpoint",)),
    Status(content="key-of-the-endpoint"),
    Error(message="no key-of-the-endpoint in /etc/hosts.d/file", code="broken"),
)


# --- What a client does ---------------------------------------------------------------------------------------------

OPEN_DOOR = {
    "name": "open_door",
    "description": "Opens a door.",
    "parameters": {"type": "object", "properties": {"room": {"type": "string"}}},
}


async def run_a_function(stage: Stage) -> None:
    """Offer a function, run what the model calls, and bring the result."""
    question = {"role": "user", "content": "open the attic"}
    events = await stage.run(messages=[question], functions=[OPEN_DOOR])
    [asked] = [event for event in events if event["type"] == "tool_call_external"]
    function = {"name": asked["tool_name"], "arguments": asked["arguments"]}
    called = {"id": asked["tool_call_id"], "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": asked["tool_call_id"], "content": "it is open"}
    told = [question, {"role": "assistant", "content": None, "tool_calls": [called]}, result]
    await stage.run(messages=told, functions=[OPEN_DOOR])


async def offer_a_function(stage: Stage) -> None:
    """Offer a function, and no more."""
    await stage.run(functions=[OPEN_DOOR], must_call=True)


async def run_a_task(stage: Stage) -> None:
    """Ask for a title, as Open WebUI does in the background."""
    await stage.run(task="title_generation", messages=[{"role": "user", "content": "Make a title."}])


SCENARIOS: dict[str, Scenario] = {
    # Text.
    "reasoning": Scenario(
        [
            chunks(
                text(None, reasoning_content="Let me "),
                text(None, reasoning_content="see."),
                text("So."),
                finish("stop"),
            )
        ]
    ),
    "hostile_text": Scenario(
        [calls(("echo", {"what": NASTY}), before=NASTY), says(NASTY)], tools=tools(echo), turns=(NASTY,)
    ),
    "cached_usage": Scenario(
        [
            chunks(
                text("Hi."),
                finish("stop"),
                {
                    "choices": [],
                    "usage": {
                        "prompt_tokens": 100,
                        "completion_tokens": 30,
                        "total_tokens": 130,
                        "prompt_tokens_details": {"cached_tokens": 64},
                        "completion_tokens_details": {"reasoning_tokens": 20},
                    },
                },
            )
        ]
    ),
    # Calls.
    "parallel_calls": Scenario(
        [calls(("slow", {"word": "one"}), ("quick", {"word": "two"})), says("Both.")], tools=racing_tools
    ),
    "status_reports_and_files": Scenario([calls(("paint", {"what": "a storm"})), says("Look.")], tools=tools(paint)),
    "long_result": Scenario(
        [calls(("read_all", {"chars": 100_000})), says("Long."), says("Still.")],
        turns=("read it", "and?"),
        tools=tools(read_all),
    ),
    # The user.
    "cancelled_call": Scenario([calls(("hang", {}), before="Wait. ")], tools=tools(hang), cancel_at="tool_call_start"),
    "agreed": Scenario([calls(("buy", {"thing": "a piano"})), says("It is yours.")], tools=tools(buy), reply=True),
    # Models that fail.
    "model_cut_off": Scenario([calls(ADD), chunks(text("Once upon"), ending="cut")], tools=tools(add)),
    # The client's own functions.
    "external_call_beside_a_tool": Scenario(
        [calls(ADD, ("open_door", {"room": "attic"})), says("Open.")], tools=tools(add), play=run_a_function
    ),
    "form": Scenario([calls(("open_door", {"room": "attic"}))], play=offer_a_function),
    # Chats.
    "sources": Scenario(
        [
            calls(("look_up", {"query": "apple"}), ("look_up", {"query": "pear"})),
            says("Apples are red [source1]."),
            calls(("look_up", {"query": "plum"})),
            says("Plums are blue [source3], apples red [source1]."),
        ],
        turns=("apples?", "plums?"),
        tools=tools(look_up),
    ),
    "background_task": Scenario([says("A title")], tools=tools(add), play=run_a_task),
    # Agents.
    "agent_raises": Scenario(
        agent=scripted(Message(content="Hm."), start("a"), failure=RuntimeError("it broke in /etc/hosts.d/file")),
        turns=("go",),
    ),
    "sloppy_agent": Scenario(agent=scripted(*SLOPPY)),
    "hesitant_agent": Scenario(agent=scripted(*HESITATION)),
    "secretive_agent": Scenario(agent=scripted(*SECRETIVE)),
}
"""By name, which is also that of the recording's file."""
