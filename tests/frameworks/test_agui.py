"""Agents of other servers over AG-UI: released frameworks as processes of their own, and hand-written answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard.agents.notices import NOTHING_SAID
from callboard.calls.approval import ANSWERED_INSTEAD
from callboard.errors import AgentError
from callboard.frameworks.agui import from_agui
from callboard.frameworks.agui.stream import NO_RESULT
from callboard.frameworks.questions import UNANSWERED
from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Parked,
    Reasoning,
    Rewind,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    Usage,
)
from tests.fakes.openai_server import (
    Answer,
    Chunks,
    OpenAIServer,
    Raw,
    Refusal,
    Script,
    Silence,
    call,
    finish,
    text,
    usage,
)
from tests.frameworks.agui.installed import HERE, python_of
from tests.frameworks.waiting import answer, begin, events_of_run, is_away, kill
from tests.serving import Service, numbered, request, serving

FRAMEWORKS = {"langgraph": "agent", "agent_framework": "agent", "llamaindex": "agent/run"}


@asynccontextmanager
async def running(framework: str, folder: Path, script: Script) -> AsyncIterator[tuple[str, OpenAIServer]]:
    """A framework's server; its address, and its model."""
    python = python_of(framework)
    async with OpenAIServer(script) as model:
        program = (str(python), str(HERE / f"{framework}_server.py"), model.base_url)
        server = await asyncio.create_subprocess_exec(*program, cwd=folder, stdout=asyncio.subprocess.PIPE)
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(await server.stdout.readline())}", model
        finally:
            server.kill()
            await server.wait()


def said(*chunks: Any) -> Chunks:
    """An answer of the model. Agent Framework needs the time in each chunk."""
    return Chunks([{**chunk, "created": 1} for chunk in chunks])


def asked(words: str, before: Sequence[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    messages = [*before, {"role": "user", "content": words}]
    return request(agent="agent", chat_id="c", user={"id": "ann"}, messages=messages, **more)


def of(events: list[Event], *kinds: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


def text_of(events: list[Event]) -> str:
    return "".join(event.content for event in of(events, Message))


def wanted(tool: str, arguments: str) -> Chunks:
    return said(text("I look. "), call(tool, arguments, call_id="call_a"), finish("tool_calls"))


TWO_CALLS = said(
    text("I look. "),
    call("wipe", '{"disk": "sda"}', call_id="call_a"),
    call("weather", '{"city": "Rome"}', index=1, call_id="call_b"),
    finish("tool_calls"),
)
DONE = said(text("It is done."), finish("stop"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.needs("downloads")
async def test_text_and_calls_are_shown_and_the_next_turn_gets_them(framework: str, tmp_path: Path) -> None:
    arguments = '{"city": "Rome"}'
    script = [
        wanted("weather", arguments),
        said(text("It rains."), finish("stop")),
        said(text("As I said."), finish("stop")),
    ]
    async with running(framework, tmp_path, script) as (url, model):
        agent = from_agui(f"{url}/{FRAMEWORKS[framework]}", agent_id="agent")
        async with serving(tmp_path, agent, confirm_tools=("*",)) as service:
            events = await service.events(asked("How is Rome?"))
            [start] = of(events, ToolCallStart)
            assert (start.tool_name, start.tool_args, start.stoppable) == ("weather", {"city": "Rome"}, False)
            assert [status.data.message for status in of(events, ToolStatus)] == [f"runs at {url[7:]}"]
            [end] = of(events, ToolCallComplete)
            assert end.result == "Rain in Rome"
            assert (text_of(events), events[-1]) == ("I look. It rains.", Done())
            made = {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": arguments}}
            before: list[dict[str, Any]] = [
                {"role": "user", "content": "How is Rome?"},
                {"role": "assistant", "content": "I look. ", "tool_calls": [made]},
                {"role": "tool", "tool_call_id": "call_a", "content": "shortened by the client"},
                {"role": "assistant", "content": "It rains."},
            ]
            await service.events(asked("Sure?", before))
    # LlamaIndex writes the calls and results of earlier turns as text.
    sent = [json.dumps(one) for one in model.requests[-1]["messages"] if one["role"] != "system"]
    parts = ("How is Rome?", json.dumps(arguments)[1:-1], "Rain in Rome", "It rains.", "Sure?")
    assert all(part in one for part, one in zip(parts, sent, strict=True))


ASKS = {"langgraph": "agent", "langgraph/outcome": "outcome", "agent_framework": "agent"}


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.needs("downloads")
async def test_call_that_the_agents_server_asks_about_waits_and_runs_once_if_allowed(
    kind: str, allowed: bool, tmp_path: Path
) -> None:
    framework = kind.partition("/")[0]
    (tmp_path / "agent").mkdir()
    wiped = tmp_path / "agent" / "wiped"
    async with running(framework, tmp_path / "agent", [TWO_CALLS, DONE]) as (url, _):
        agent = partial(from_agui, f"{url}/{ASKS[kind]}", agent_id="agent")
        async with serving(tmp_path / "first", agent()) as first:
            # The first server is killed while the question is open: the next one has a copy of its database.
            if allowed:
                asked_events = await begin(first, partial(kill, tmp_path / "first", tmp_path / "next"))
            else:
                asked_events = await begin(first, is_away)
                assert isinstance(asked_events[-1], Parked)
                await kill(tmp_path / "first", tmp_path / "next")
            [question] = of(asked_events, InputRequest)
            assert (question.arguments, question.remember) == ({"disk": "sda"}, False)
            async with serving(tmp_path / "next", agent()) as second:
                await answer(second, question.request_id, allowed)
                events = await events_of_run(second)
    assert (text_of(events), events[-1]) == ("I look. It is done.", Done())
    outcomes = {one.tool_name: one for one in of(events, ToolCallComplete, ToolCallError)}
    assert outcomes["weather"].result == "Rain in Rome"
    if allowed:
        assert wiped.read_text() == "sda\n"
        assert outcomes["wipe"].result == "wiped sda"
    else:
        assert not wiped.exists()
        assert outcomes["wipe"].code == "denied"


@pytest.mark.parametrize("path", ["agent", "per_call"])
@pytest.mark.needs("downloads")
async def test_one_of_two_calls_is_allowed(path: str, tmp_path: Path) -> None:
    calls = [call("wipe", f'{{"disk": "sd{one}"}}', index=index, call_id=one) for index, one in enumerate("ab")]
    async with running("langgraph", tmp_path, [said(*calls, finish("tool_calls")), DONE]) as (url, _):
        async with serving(tmp_path, from_agui(f"{url}/{path}", agent_id="agent")) as service:

            async def decide(_: Service, question: InputRequest) -> bool:
                no: object = {"words": "Not this one."}
                await answer(service, question.request_id, no if question.tool_call_id == "a" else True)
                return False

            events = await begin(service, decide)
    assert text_of(events) == "It is done."
    assert [one.result for one in of(events, ToolCallComplete)] == ["wiped sdb"]
    assert [one.tool_call_id for one in of(events, ToolCallError)] == ["a"]
    assert (tmp_path / "wiped").read_text() == "sdb\n"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("four", "4 seats in Rome"),
        ("1", "'2' seats in Rome"),
        ("none at all", "'none at all' seats in Rome"),
        (None, None),
    ],
)
@pytest.mark.needs("downloads")
async def test_question_of_a_tool_is_asked_with_its_options(
    value: str | None, told: str | None, tmp_path: Path
) -> None:
    script = [wanted("book", '{"city": "Rome"}'), said(text("Booked."), finish("stop"))]
    async with running("langgraph", tmp_path, script) as (url, _):
        async with serving(tmp_path, from_agui(f"{url}/agent", agent_id="agent")) as service:
            events = await service.events_with_answer(asked("Book", run_id="r"), value)
    [question] = of(events, InputRequest)
    assert (question.message, question.choices, question.other) == ("How many seats?", ("2", "four"), True)
    if told:
        assert [end.result for end in of(events, ToolCallComplete)] == [told]
        assert text_of(events) == "I look. Booked."
    else:
        assert text_of(events).endswith(UNANSWERED)


def sse(*events: Mapping[str, Any] | str, cut: bool = False, **headers: str) -> Raw:
    """An answer with these events, and RUN_FINISHED unless the last one says how the run ends; a text is sent as is."""
    if not cut and not (isinstance(events[-1], dict) and str(events[-1]["type"]).startswith("RUN_")):
        events = (*events, {"type": "RUN_FINISHED"})
    data = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return Raw([f"data: {one}\n\n".encode() for one in data], {"Content-Type": "text/event-stream", **headers})


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def called(arguments: str = '{"city": "Rome"}', call_id: str = "a", name: str = "weather") -> list[dict[str, Any]]:
    started = event("TOOL_CALL_START", toolCallId=call_id, toolCallName=name)
    return [
        started,
        event("TOOL_CALL_ARGS", toolCallId=call_id, delta=arguments),
        event("TOOL_CALL_END", toolCallId=call_id),
    ]


def say(words: str, message_id: str = "m") -> dict[str, Any]:
    return event("TEXT_MESSAGE_CHUNK", messageId=message_id, delta=words)


def lines(events: list[Event]) -> list[str]:
    """One line for each thing that a user notices."""
    found: list[tuple[str, str]] = []
    for one in events:
        match one:
            case Message() | Reasoning():
                kind = "say" if isinstance(one, Message) else "think"
                before = found.pop()[1] if found and found[-1][0] == kind else ""
                found.append((kind, before + one.content))
            case ToolCallStart():
                found.append(("call", f"{one.tool_name} {one.tool_args}"))
            case ToolCallComplete():
                found.append(("result", one.result))
            case ToolCallError():
                found.append(("failed", one.error))
            case Status():
                found.append(("status", one.content))
            case Usage():
                found.append(("usage", f"{one.input_tokens} {one.output_tokens}"))
            case Error():
                found.append(("error", one.message))
    return [" ".join(line) for line in found]


ROME = "call weather {'city': 'Rome'}"
FAILED = "error The agent at URL failed: {}. Look at the log of its server."
RESULT = {"role": "tool", "toolCallId": "a", "content": "Rain"}
CALL = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
QUIRKS: Mapping[str, tuple[Sequence[Mapping[str, Any] | str], Sequence[str]]] = {
    "a thought, in both forms": (
        [
            event("THINKING_START"),
            event("THINKING_TEXT_MESSAGE_CONTENT", delta="Hm."),
            event("REASONING_MESSAGE_CONTENT", messageId="r", delta="So."),
            event("REASONING_MESSAGE_CHUNK", delta="Yes."),
            event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="r", encryptedValue="x"),
            say("Hi."),
        ],
        ["think Hm.So.Yes.", "say Hi."],
    ),
    "two messages": (
        [say("One.", "a"), say("Two.", "b"), event("TEXT_MESSAGE_CHUNK", delta=" More.")],
        ["say One.\n\nTwo. More."],
    ),
    "unknown events, keep-alives and no objects": (
        ["ping", "[1]", "null", event("TURN_UP"), {"no": "type"}, event("STATE_DELTA", delta=[]), say("Hi.")],
        ["say Hi."],
    ),
    "calls in pieces, interleaved": (
        [
            event("TOOL_CALL_START", toolCallId="a", toolCallName="one"),
            event("TOOL_CALL_START", toolCallId="b", toolCallName="two"),
            event("TOOL_CALL_ARGS", toolCallId="a", delta='{"n"'),
            event("TOOL_CALL_ARGS", toolCallId="b", delta='{"n": 2}'),
            event("TOOL_CALL_ARGS", toolCallId="a", delta=": 1}"),
            event("TOOL_CALL_END", toolCallId="b"),
            event("TOOL_CALL_END", toolCallId="a"),
            event("TOOL_CALL_RESULT", toolCallId="a", content="1"),
            event("TOOL_CALL_RESULT", toolCallId="a", content="again"),
            event("TOOL_CALL_RESULT", toolCallId="b", content="2"),
            event("TOOL_CALL_RESULT", toolCallId="unknown", content="3"),
            say("Done."),
        ],
        ["call two {'n': 2}", "call one {'n': 1}", "result 1", "result 2", "say Done."],
    ),
    "calls in chunks": (
        [
            event("TOOL_CALL_CHUNK", toolCallId="a", toolCallName="one", delta='{"n"'),
            event("TOOL_CALL_CHUNK", delta=": 1}"),
            event("TOOL_CALL_CHUNK", toolCallId="b", toolCallName="two"),
            event("TOOL_CALL_RESULT", toolCallId="a", content="1"),
            event("TOOL_CALL_RESULT", toolCallId="b", content="2"),
            say("Done."),
        ],
        ["call one {'n': 1}", "call two {}", "result 1", "result 2", "say Done."],
    ),
    "a result without the end of its arguments": (
        [*called()[:2], event("TOOL_CALL_RESULT", toolCallId="a", content="Rain"), say("Wet.")],
        [ROME, "result Rain", "say Wet."],
    ),
    "a result in a snapshot of messages only, the answer too": (
        [*called(), event("MESSAGES_SNAPSHOT", messages=[RESULT, {"role": "assistant", "content": "Wet."}])],
        [ROME, "result Rain", "say Wet."],
    ),
    "a call in a snapshot only, with the id of a call of an earlier turn": (
        [
            event(
                "MESSAGES_SNAPSHOT",
                messages=[
                    {"role": "user", "content": "Hello?"},
                    {"role": "assistant", "toolCalls": [{**CALL, "function": {"name": "weather", "arguments": "{}"}}]},
                    {**RESULT, "content": "Sun"},
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "toolCalls": [CALL]},
                ],
            ),
            event("TOOL_CALL_RESULT", toolCallId="a", content="Rain"),
            say("Wet."),
        ],
        [ROME, "result Rain", "say Wet."],
    ),
    "a result that is the answer": (
        [say("I look."), *called(), event("MESSAGES_SNAPSHOT", messages=[RESULT])],
        ["say I look.", ROME, "result Rain", "say Rain"],
    ),
    "an answer in a snapshot only, without the result": (
        [*called(), event("MESSAGES_SNAPSHOT", messages=[{"role": "assistant", "content": "Wet."}])],
        [ROME, f"result {NO_RESULT}", "say Wet."],
    ),
    "no answer": (
        [
            say("I look."),
            *called(),
            event(
                "RAW",
                event={
                    "data": {"output": {"type": "ai", "content": "I look.", "tool_calls": [{"id": "a", "args": {}}]}}
                },
            ),
        ],
        ["say I look.", ROME, f"result {NO_RESULT}", f"say {NOTHING_SAID}"],
    ),
    "an error of a call in a snapshot": (
        [*called(), event("MESSAGES_SNAPSHOT", messages=[{**RESULT, "error": "no sky"}]), say("Sorry.")],
        [ROME, "failed no sky", "say Sorry."],
    ),
    "arguments and result in LangChain's form, in a state": (
        [
            *called("")[::2],
            event(
                "STATE_SNAPSHOT",
                snapshot={
                    "messages": [
                        {
                            "type": "ai",
                            "content": "",
                            "tool_calls": [{"id": "a", "name": "weather", "args": {"city": "Rome"}}],
                        },
                        {"type": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "Rain"}]},
                        {"type": "ai", "content": "Wet."},
                    ]
                },
            ),
        ],
        [ROME, "result Rain", "say Wet."],
    ),
    "no result at all": ([*called(), say("Done.")], [ROME, "say Done.", f"result {NO_RESULT}"]),
    "the text of a sub-agent": ([{**say("I, the helper."), "subagentRunId": "s"}, say("Done.")], ["say Done."]),
    "an event that is none": (
        [event("MESSAGES_SNAPSHOT", messages=[{"role": "assistant", "toolCalls": [1]}])],
        ["error The agent at URL sent an event MESSAGES_SNAPSHOT that is no event of AG-UI."],
    ),
    "activities and tokens": (
        [
            event("STEP_STARTED", stepName="node_1"),
            event("ACTIVITY_SNAPSHOT", messageId="x", activityType="SEARCH", content={"message": "Searching"}),
            event("ACTIVITY_SNAPSHOT", messageId="y", activityType="PLAN", content={"steps": []}),
            say("Done."),
            event(
                "RUN_FINISHED", usage=[{"inputTokens": 5, "outputTokens": 2}, {"inputTokens": 1, "outputTokens": -9}]
            ),
        ],
        ["status Searching", "status PLAN", "say Done.", "usage 6 2"],
    ),
    "an error": (
        [say("Well"), event("RUN_ERROR", message="out of\nmemory.")],
        ["say Well", FAILED.format("out of memory")],
    ),
    "an error in a raw event, without words": (
        [event("RAW", event={"event": "on_chain_error", "data": {"error": "no key"}}), event("RUN_ERROR", message="")],
        [FAILED.format("no key")],
    ),
    "an error in a raw event only": (
        [event("RAW", event={"type": "error", "message": "no key"})],
        [FAILED.format("no key")],
    ),
    "an error in the state only": (
        [event("STATE_SNAPSHOT", snapshot={"error": {"message": "no key"}})],
        [FAILED.format("no key")],
    ),
    "an error that the agent has got over": (
        [event("STATE_SNAPSHOT", snapshot={"error": "no key"}), say("But here it is.")],
        ["say But here it is."],
    ),
    "a result that is Callboard's markup": (
        [*called(), event("TOOL_CALL_RESULT", toolCallId="a", content="</details><script>x</script>"), say("Done.")],
        [ROME, "result </details><script>x</script>", "say Done."],
    ),
}


@pytest.mark.parametrize("quirk", QUIRKS)
async def test_what_endpoints_send_in_other_ways_is_read(quirk: str, tmp_path: Path) -> None:
    sent, expected = QUIRKS[quirk]
    async with OpenAIServer([sse(event("RUN_STARTED"), *sent)]) as endpoint:
        url = f"{endpoint.base_url}/chat/completions"
        async with serving(tmp_path, from_agui(url, agent_id="agent"), max_user_tokens_per_day=99) as service:
            events = await service.events(asked("Hi"))
            await service.state.runs.close()
            counted = await service.state.store.usage("ann").today()
    assert lines(events) == [line.replace("URL", url) for line in expected]
    assert counted.tokens == (8 if "usage 6 2" in expected else 0)


KEY = "sk-very-secret-key"
REFUSALS: Mapping[str, tuple[Answer, str]] = {
    "401": (
        Refusal(401, f"wrong key {KEY}"),
        "refused the request (401): give from_agui the headers= that it accepts.",
    ),
    "404": (
        Refusal(404),
        "answered 404: give from_agui the whole address of the agent's route. Check that an agent speaks AG-UI there.",
    ),
    "422": (
        Refusal(422, f"no messages, {KEY}"),
        "refused the request (422): no messages, [secret]. Change the request.",
    ),
    "429": (Refusal(429), "is over its limit (429): refused. Wait, or use another model."),
    "500": (Refusal(500), "failed: refused. Look at its endpoint's log."),
    "a redirect": (
        Raw([], {"Location": "/other/", "Content-Length": "0"}, 307),
        "redirects to ORIGIN/other/: give from_agui that address. Check that an agent speaks AG-UI there.",
    ),
    "a web page": (
        Raw([b"<!doctype html>"], {"Content-Type": "text/html; charset=utf-8"}),
        "answered with text/html instead of text/event-stream. Check that an agent speaks AG-UI there.",
    ),
    "JSON": (
        Raw([b"{}"], {"Content-Type": "application/json"}),
        "answered with application/json instead of text/event-stream. Check that an agent speaks AG-UI there.",
    ),
    "no JSON in an event": (
        sse(say("Well"), "{oops", cut=True),
        "sent an answer that is not JSON: {oops. Check that an agent speaks AG-UI there.",
    ),
    "no last event": (
        sse(say("Well"), cut=True),
        "ended its answer without the event RUN_FINISHED, so the answer is incomplete: look at its log, and ask again.",
    ),
    "a cut connection": (
        sse(say("Well"), cut=True, **{"Content-Length": "999"}),
        "ended its answer in the middle: CutOff. Ask again, and look at its endpoint's log if it happens often.",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_endpoint_that_does_not_answer_as_it_should_is_told_with_what_to_do(case: str, tmp_path: Path) -> None:
    refusal, told = REFUSALS[case]
    async with OpenAIServer([refusal]) as endpoint:
        url = f"{endpoint.base_url}/chat/completions"
        agent = from_agui(
            f"{url}?tenant=a",
            agent_id="agent",
            headers=lambda run: {"X-Api-Key": KEY, "X-User": str(run.user and run.user.id)},
        )
        async with serving(tmp_path, agent) as service:
            events = await service.events(asked("Hi"))
    origin = endpoint.base_url.removesuffix("/v1")
    assert lines(events)[-1] == f"error The agent at {url} {told.replace('ORIGIN', origin)}"
    assert (endpoint.headers[0]["x-api-key"], endpoint.headers[0]["x-user"]) == (KEY, "ann")


async def test_endpoint_that_cannot_be_reached_or_is_silent_is_told(tmp_path: Path) -> None:
    async with OpenAIServer([Silence()]) as endpoint:
        url = f"{endpoint.base_url}/chat/completions"
        async with serving(tmp_path, from_agui(url, agent_id="agent", timeout_seconds=0.1)) as service:
            assert "did not answer in time" in lines(await service.events(asked("Hi")))[-1]
    async with serving(tmp_path, from_agui(url, agent_id="agent")) as service:
        assert f"{url} cannot be reached" in lines(await service.events(asked("Hi")))[-1]


@pytest.mark.parametrize("url", ["", "agent", "ftp://host/agent", "http:///agent", "http://[::1"])
def test_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(AgentError, match="address of an AG-UI endpoint"):
        from_agui(url)


async def test_stop_ends_the_request(tmp_path: Path) -> None:
    async with OpenAIServer([Silence()]) as endpoint:
        agent = from_agui(f"{endpoint.base_url}/chat/completions", agent_id="agent")
        async with serving(tmp_path, agent) as service:
            async with asyncio.TaskGroup() as group:
                run = group.create_task(service.events(asked("Hi", run_id="r")))
                await endpoint.hanging.wait()
                await service.client.post("/v1/runs/r/cancel", params={"user_id": "ann"})
                await endpoint.disconnected.wait()
            assert run.result()[-1] == Done(finish_reason="cancelled")


APPROVAL = {
    "id": "i",
    "reason": "tool_call",
    "toolCallId": "a",
    "responseSchema": {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "editedArgs": {"type": "object"},
            "reason": {"type": "string"},
        },
    },
}


async def test_answer_has_no_arguments_and_the_request_has_those_of_the_agents_server(tmp_path: Path) -> None:
    """A peer ran the arguments that its client sent with the approval."""
    interrupted = sse(
        say("I look."), *called(), event("RUN_FINISHED", outcome={"type": "interrupt", "interrupts": [APPROVAL]})
    )
    rest = sse(event("TOOL_CALL_RESULT", toolCallId="a", content="Rain"), say("Wet."))
    first = sse(*called(), event("TOOL_CALL_RESULT", toolCallId="a", content="Sun"), say("Dry."))
    async with OpenAIServer([first, interrupted, rest]) as endpoint:
        agent = from_agui(f"{endpoint.base_url}/chat/completions", agent_id="agent")
        async with serving(tmp_path, agent) as service:
            # So that the id of the second call is not unique in the chat.
            await service.events(asked("Hi", run_id="r1"))
            events = await service.events_with_answer(asked("And now?", run_id="r2"), True)
            assert lines(events) == ["say I look.", ROME, "result Rain", "say Wet."]
            assert of(events, InputRequest)[0].form == {}
    _, begun, resumed = endpoint.requests
    assert resumed["resume"] == [{"interruptId": "i", "status": "resolved", "payload": {"approved": True}}]
    assert (resumed["threadId"], resumed["messages"][:-1]) == (begun["threadId"], begun["messages"])
    [made] = resumed["messages"][-1]["toolCalls"]
    assert (made["id"], made["function"]["arguments"]) == ("a", '{"city": "Rome"}')
    assert resumed["messages"][-1]["content"] == "I look."


@pytest.mark.parametrize("answers", ["approve", "words"])
async def test_several_questions_are_answered_together(answers: str, tmp_path: Path) -> None:
    form = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
    named = {"id": "k", "reason": "color", "metadata": {"reason": "metadata of the question"}}
    interrupts = [APPROVAL, {"id": "j", "reason": "seats", "message": "How many?", "responseSchema": form}, named]
    finished = event("RUN_FINISHED", outcome={"type": "interrupt", "interrupts": interrupts})
    # The text is cut between the halves of a character.
    first = sse(say("Rome \ud83c"), *called(), finished)
    async with OpenAIServer([first, sse(say("Done."))]) as endpoint:
        agent = from_agui(f"{endpoint.base_url}/chat/completions", agent_id="agent")
        async with serving(tmp_path, agent) as service:
            values: dict[str, object] = {
                "form": {"seats": 4},
                "input": "Blue",
                "confirmation": True if answers == "approve" else {"words": "No."},
            }
            questions: dict[str, str] = {}
            async with service.client.stream("POST", "/v1/runs", json=asked("Hi", run_id="r")) as response:
                async for _, one in numbered(response):
                    if isinstance(one, InputRequest):
                        questions[one.kind] = one.message
                        sent = {"request_id": one.request_id, "value": values[one.kind]}
                        await service.client.post("/v1/runs/r/input", params={"user_id": "ann"}, json=sent)
    assert "metadata of the question" in questions["input"]
    payloads = {one["interruptId"]: one["payload"] for one in endpoint.requests[1]["resume"]}
    refused = {"approved": False, "reason": f"{ANSWERED_INSTEAD}\n\nNo."}
    assert payloads == {"i": {"approved": True} if answers == "approve" else refused, "j": {"seats": 4}, "k": "Blue"}


async def test_answer_to_a_question_is_kept_while_an_approval_waits(tmp_path: Path) -> None:
    question = {"id": "j", "reason": "seats", "message": "How many?"}
    ended = {**APPROVAL, "id": "k", "toolCallId": "c"}
    finished = event("RUN_FINISHED", outcome={"type": "interrupt", "interrupts": [APPROVAL, ended, question]})
    begun = [*called(), *called(call_id="b"), *called(call_id="c")]
    first = sse(*begun, event("TOOL_CALL_RESULT", toolCallId="c", content="Sun"), finished)
    rest = sse(event("TOOL_CALL_RESULT", toolCallId="b", content="Mild"), say("Done."))
    async with OpenAIServer([first, rest]) as endpoint:
        agent = partial(from_agui, f"{endpoint.base_url}/chat/completions", agent_id="agent")
        async with serving(tmp_path / "first", agent()) as one:

            async def decide(service: Service, asked: InputRequest) -> bool:
                if asked.tool_call_id:
                    return await is_away(service, asked)
                await answer(service, asked.request_id, "Four")
                return False

            events = await begin(one, decide)
            await kill(tmp_path / "first", tmp_path / "next")
        async with serving(tmp_path / "next", agent()) as next_one:
            await answer(next_one, f"approve:{of(events, ToolCallStart)[0].tool_call_id}", False)
            events = await events_of_run(next_one)
    payloads = {one["interruptId"]: one["payload"] for one in endpoint.requests[1]["resume"]}
    assert payloads["j"] == "Four"
    # A server that was killed after the first of two refusals leaves such a call.
    assert [payloads[one]["approved"] for one in "ik"] == [False, False]
    assert [one.result for one in of(events, ToolCallComplete)] == ["Sun", "Mild"]


AGAIN = event("RUN_FINISHED", outcome={"type": "interrupt", "interrupts": [APPROVAL]})


@pytest.mark.parametrize(
    ("next_answer", "told"),
    [
        # Agent Framework does so if of several calls of one answer only some are allowed.
        (AGAIN, "it asks again about a call that is decided: allow or refuse all calls of an answer"),
        # LangGraph's servers do so if they have lost the thread.
        (say("Done."), "it sent no result of a call that was allowed: it may have lost the thread in a restart"),
    ],
)
async def test_answer_that_does_not_follow_the_approval_ends_with_an_error(
    next_answer: Mapping[str, Any], told: str, tmp_path: Path
) -> None:
    async with OpenAIServer([sse(*called(), AGAIN), sse(next_answer)]) as endpoint:
        url = f"{endpoint.base_url}/chat/completions"
        async with serving(tmp_path, from_agui(url, agent_id="agent")) as service:
            events = await service.events_with_answer(asked("Hi", run_id="r"), True)
    assert lines(events)[-1] == FAILED.replace("URL", url).format(told)


async def test_run_whose_server_is_killed_ends_and_is_not_sent_again(tmp_path: Path) -> None:
    def endless() -> Iterator[bytes]:
        yield from sse(*called(), say("So far."), cut=True).body
        while True:
            yield b": keep-alive\n\n"

    async with OpenAIServer([Raw(endless(), {"Content-Type": "text/event-stream"})]) as endpoint:
        agent = partial(from_agui, f"{endpoint.base_url}/chat/completions", agent_id="agent")
        async with serving(tmp_path / "first", agent()) as first:
            async with first.client.stream("POST", "/v1/runs", json=asked("Hi", run_id="r")) as response:
                async for _, one in numbered(response):
                    if isinstance(one, Message):
                        break
                await kill(tmp_path / "first", tmp_path / "next")
                async with serving(tmp_path / "next", agent()) as second:
                    events = await events_of_run(second)
        assert [one.code for one in of(events, ToolCallError, Error)] == ["interrupted", "interrupted"]
        assert (text_of(events), of(events, Rewind)) == ("So far.", [])
        assert "send the message again" in lines(events)[-1]
        assert len(endpoint.requests) == 1


async def test_background_task_is_answered_by_the_servers_model(tmp_path: Path) -> None:
    async with OpenAIServer([said(text("A title"), finish("stop"), usage(5, 2))]) as model:
        agent = from_agui("http://127.0.0.1:9/agent", agent_id="agent")
        async with serving(tmp_path, agent, model_base_url=model.base_url, model="m") as service:
            events = await service.events(asked("Name this chat", task="title_generation"))
    assert lines(events) == ["say A title", "usage 5 2"]
