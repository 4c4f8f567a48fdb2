"""How the answer of an endpoint ends: for the pipe, for chat completions and for responses.

`ENDINGS` is the table of docs/reference/endings.md, as far as the model's endpoint decides the ending.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from callboard.agents import Agent
from callboard.calls import ToolCall, tool
from callboard.models import ToolCallDelta
from callboard.skills import Skill
from callboard_protocol import Done, Error, Event, Rewind, ToolCallComplete, ToolCallError
from tests.fakes.openai_server import Answer, Body, OpenAIServer, Raw, call, chunks, finish, text
from tests.formats.test_native import ONE, STREAMS_OF_ONE, STREAMS_OF_TWO, TWO, WHOLE_MESSAGES_OF_TWO
from tests.http.test_openai_requests import complete, respond
from tests.loop.conftest import text_of
from tests.models.test_finish_reasons import NATIVE_REASONS, REASONS
from tests.openai_client import asking
from tests.serving import Service, request, serving

NO = "I cannot help with that."
MALFORMED = "Malformed function call: print(default_api.change(value='x'))"
CHANGE = call("change", '{"value": "x"}', call_id="c")
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def choice(**fields: Any) -> Body:
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, **fields}]}


def refuses(words: str) -> Body:
    return choice(delta={"refusal": words})


@dataclass(frozen=True)
class Ending:
    """What the endpoint answers, and what becomes of it; `words` are the answer's, `said` the error's.

    `chat` is the `finish_reason` of a chat completion, `response` the status of a response and why it is incomplete;
    for a run that fails both are left out.
    """

    answers: Sequence[Answer]
    last: Done | str
    words: str = ""
    said: str = ""
    chat: str = ""
    response: tuple[str, str | None] = ("completed", None)
    is_refusal: bool = False


def filtered(*parts: Body, words: str, reason: str = "content_filter") -> Ending:
    return Ending(
        [chunks(*parts, finish(reason))],
        Done(finish_reason="content_filter"),
        words,
        chat="content_filter",
        response=("incomplete", "content_filter"),
    )


def refused(*parts: Body, words: str) -> Ending:
    done = Done(finish_reason="refusal")
    return Ending([chunks(*parts)], done, words, chat="content_filter", is_refusal=True)


AZURE = {"content_filter_results": {"hate": {"filtered": True, "severity": "high"}}}
ENDINGS = {
    "a filter in the middle": filtered(text("The recipe is"), words="The recipe is"),
    "a filter before a word": filtered(words="The content filter of the model's endpoint blocked the answer."),
    "a filter after a call": filtered(text("Wait."), CHANGE, words="Wait."),
    "Gemini's filter": filtered(text("So"), words="So", reason="content_filter: PROHIBITED_CONTENT"),
    "Azure's filter": filtered(
        {"choices": [], "prompt_filter_results": []}, text("So"), choice(delta={}, **AZURE), words="So"
    ),
    "a refusal": refused(refuses(""), refuses("I cannot help "), refuses("with that."), finish("stop"), words=NO),
    "a refusal after words": refused(text("Hm."), refuses(NO), finish("stop"), words=f"Hm.\n\n{NO}"),
    "a refusal with a call": refused(CHANGE, refuses(NO), finish("tool_calls"), words=NO),
    "a refusal in a whole message": refused(
        choice(message={"content": None, "refusal": NO}, finish_reason="stop"), words=NO
    ),
    "a refusal without a word": refused(finish("refusal"), words="The model refused to answer"),
    "Anthropic's refusal in mid-answer": Ending(
        [chunks(text("First, take"), finish("refusal"))],
        Done(finish_reason="refusal"),
        "First, take",
        chat="content_filter",
        response=("incomplete", "content_filter"),
    ),
    "an error": Ending(
        [chunks(text("Half an"), finish("error"))],
        "model_aborted",
        "Half an",
        "with an error, so the answer is incomplete.",
    ),
    "an error after a whole call": Ending(
        [chunks(CHANGE, finish("error"))], "model_aborted", said="with an error, so the answer is incomplete."
    ),
    "DeepSeek's error": Ending(
        [chunks(finish("insufficient_system_resource"))], "model_aborted", said="(insufficient_system_resource)"
    ),
    "an error in the choice": Ending(
        [chunks(text("Half an"), choice(delta={}, finish_reason="error", error={"message": "no <b>moon</b>"}))],
        "model_error",
        "Half an",
        "no <b>moon</b>",
    ),
    "a call that the endpoint could not read": Ending(
        [chunks(refuses(MALFORMED), finish("malformed_function_call"))] * 2, "model_malformed_call", said=MALFORMED
    ),
    "one in Gemini's own words": Ending(
        [chunks(finish("function_call_filter: MALFORMED_FUNCTION_CALL"))] * 2,
        "model_malformed_call",
        said="(function_call_filter: MALFORMED_FUNCTION_CALL)",
    ),
    "an unknown reason": Ending(
        [chunks(text("Yes."), finish("moonrise"))], Done(finish_reason="stop"), "Yes.", chat="stop"
    ),
    "an unknown reason without a word": Ending(
        [chunks(finish("moonrise"))], Done(finish_reason="stop"), "without an answer", chat="stop"
    ),
}
every_ending = pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@asynccontextmanager
async def answering(folder: Path, answers: Sequence[Answer]) -> AsyncIterator[tuple[Service, AsyncOpenAI, list[str]]]:
    """A server whose model's endpoint gives these answers, a client for it, and what its tool was called with."""
    changed: list[str] = []

    @tool(read_only=True)
    async def change(value: str = "by default") -> str:
        """Changes it."""
        changed.append(value)
        return "changed"

    agent = Agent("house", skills=(Skill("s", "S.", tools=(change,)),))
    async with OpenAIServer(list(answers)) as endpoint:
        async with asking(folder, agent, model_base_url=endpoint.base_url, model="m") as (service, client):
            yield service, client, changed
        assert len(endpoint.requests) == len(answers)


async def events_of(folder: Path, *answers: Answer) -> tuple[list[Event], list[str]]:
    async with answering(folder, answers) as (service, _, changed):
        return await service.events(request(agent="house")), changed


@every_ending
async def test_the_pipe_is_told_of_each_ending_in_its_own_words_and_no_call_runs(
    tmp_path: Path, ending: Ending
) -> None:
    events, changed = await events_of(tmp_path, *ending.answers)
    last = events[-1]
    assert changed == []
    if isinstance(last, Error):
        assert last.code == ending.last
        assert ending.said in last.message
        assert text_of(events) == ending.words
    else:
        assert last == ending.last
        assert ending.words in text_of(events)


async def complete_all(client: AsyncOpenAI, stream: bool) -> Any:
    answer = await complete(client, "house", stream=stream)
    return [chunk async for chunk in answer] if stream else answer


@every_ending
@streamed_or_not
async def test_chat_completions_end_with_openais_word_for_it(tmp_path: Path, ending: Ending, stream: bool) -> None:
    async with answering(tmp_path, ending.answers) as (_, client, _):
        if isinstance(ending.last, str):
            with pytest.raises(openai.APIError) as raised:
                await complete_all(client, stream)
            assert ending.said in raised.value.message
            return
        answer = await complete_all(client, stream)
    if stream:
        choices = [chunk.choices[0] for chunk in answer]
        reason = choices[-1].finish_reason
        content = "".join(one.delta.content or "" for one in choices)
        refusal = "".join(one.delta.refusal or "" for one in choices)
    else:
        [one] = answer.choices
        reason, content, refusal = one.finish_reason, one.message.content, one.message.refusal or ""
    assert reason == ending.chat
    assert ending.words in content
    assert bool(refusal) == ending.is_refusal
    assert refusal in content


@every_ending
@streamed_or_not
async def test_responses_end_with_openais_word_for_it(tmp_path: Path, ending: Ending, stream: bool) -> None:
    async with answering(tmp_path, ending.answers) as (_, client, _):
        if isinstance(ending.last, str) and (not stream or not ending.words):
            with pytest.raises(openai.InternalServerError) as raised:
                await respond(client, "house", stream=stream)
            assert ending.said in raised.value.message
            return
        answer = await respond(client, "house", stream=stream)
        parts = [part async for part in answer] if stream else []
        response = parts[-1].response if stream else answer
    if isinstance(ending.last, str):
        assert (response.status, response.error.code) == ("failed", "server_error")
        assert ending.said in response.error.message
        return
    details = response.incomplete_details
    assert (response.status, details.reason if details else None) == ending.response
    contents = [part for item in response.output if item.type == "message" for part in item.content]
    said = "".join(part.refusal if part.type == "refusal" else part.text for part in contents)
    assert ending.words in said
    assert any(part.type == "refusal" for part in contents) == ending.is_refusal
    if stream and ending.is_refusal:
        deltas = "".join(part.delta for part in parts if part.type == "response.refusal.delta")
        [done] = [part.refusal for part in parts if part.type == "response.refusal.done"]
        assert deltas == done == contents[-1].refusal


FORM: Any = {"type": "function", "function": {"name": "place", "parameters": {"type": "object", "properties": {}}}}
NO_FORMS = {
    "a refusal": chunks(refuses(NO), finish("stop")),
    "a refusal beside it": chunks(text('{"city": "Oslo"}'), refuses(NO), finish("stop")),
    "a filter": chunks(text('{"city": "Oslo"}'), finish("content_filter")),
}


@pytest.mark.parametrize("answer", NO_FORMS.values(), ids=NO_FORMS.keys())
async def test_words_that_a_filter_cut_or_that_refuse_are_no_answer_in_the_clients_form(
    tmp_path: Path, answer: Answer
) -> None:
    choose: Any = {"type": "function", "function": {"name": "place"}}
    async with answering(tmp_path, [answer]) as (_, client, _):
        completion = await complete(client, "house", tools=[FORM], tool_choice=choose)
    [one] = completion.choices
    assert (one.finish_reason, one.message.tool_calls) == ("content_filter", None)
    assert one.message.refusal in (NO, None)
    assert one.message.content


async def test_a_call_that_the_endpoint_could_not_read_is_asked_for_once_more(tmp_path: Path) -> None:
    malformed = chunks(choice(delta={"reasoning": "hm"}), text("I look."), finish("MALFORMED_FUNCTION_CALL"))
    events, changed = await events_of(
        tmp_path, malformed, chunks(CHANGE, finish("tool_calls")), chunks(text("Done."), finish("stop"))
    )
    assert changed == ["x"]
    assert text_of(events[events.index(Rewind()) :]) == "Done."
    assert events[-1] == Done(finish_reason="stop")


GROQ = {
    "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": '<function=change{"value": "x"</function>',
}
LLAMA_CPP = {"code": 500, "message": "Failed to parse input at pos 12: <tool_call>", "type": "server_error"}
OLLAMA = {"message": "error parsing tool call: raw='{\"value\": x', err=invalid character 'x'", "type": "api_error"}


@pytest.mark.parametrize("status", [200, 400, 500], ids=["in the stream", "400", "500"])
@pytest.mark.parametrize("error", [GROQ, LLAMA_CPP, OLLAMA], ids=["Groq", "llama.cpp", "Ollama"])
async def test_a_call_that_the_endpoint_reports_as_unreadable_is_asked_for_once_more(
    tmp_path: Path, error: Body, status: int
) -> None:
    answer = chunks(choice(delta={"reasoning": "hm"}), {"error": error})
    malformed = answer if status == 200 else Raw([json.dumps({"error": error}).encode()], status=status)
    events, changed = await events_of(
        tmp_path, malformed, chunks(CHANGE, finish("tool_calls")), chunks(text("Done."), finish("stop"))
    )
    assert changed == ["x"]
    assert text_of(events) == "Done."
    [*_, last] = (await events_of(tmp_path, malformed, malformed))[0]
    assert isinstance(last, Error)
    assert last.code == "model_malformed_call"
    assert error["message"] in last.message


async def test_a_title_is_asked_for_once_more_too(tmp_path: Path) -> None:
    answers = [chunks(text("Bad"), finish("malformed_function_call")), chunks(text("Good"), finish("stop"))]
    async with answering(tmp_path, answers) as (service, _, _):
        events = await service.events(request(agent="house", task="title_generation"))
    assert text_of(events[events.index(Rewind()) :]) == "Good"


REFUSED_ARGUMENTS: list[object] = [[{"value": "y"}], [], 7, 1.5, True, False, "no object", "[]", '{"value": ']


@pytest.mark.parametrize("name", ["arguments", "parameters", "args", "input"])
@pytest.mark.parametrize("arguments", REFUSED_ARGUMENTS, ids=str)
async def test_arguments_that_are_no_object_are_refused_and_the_tool_does_not_run_with_its_defaults(
    tmp_path: Path, arguments: object, name: str
) -> None:
    function = {"name": "change", name: arguments}
    piece = called([{"index": 0, "id": "c", "type": "function", "function": function}])
    events, changed = await events_of(
        tmp_path, chunks(piece, finish("tool_calls")), chunks(text("Oh."), finish("stop"))
    )
    assert changed == []
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["invalid_args"]


def called(tool_calls: object) -> Body:
    return choice(delta={"tool_calls": tool_calls})


FUNCTION: Body = {"name": "change", "arguments": {"value": "x"}}
AGAIN = {"content": "", "tool_calls": [{"id": "c", "function": {"name": "change", "arguments": '{"value":"x"}'}}]}
RUN_ONCE: dict[str, list[Body]] = {
    "an object": [called([{"id": "c", "function": FUNCTION}])],
    "no list": [called({"id": "c", "function": FUNCTION})],
    "no function": [called([{"id": 1, **FUNCTION}])],
    "again in a whole message": [CHANGE, choice(delta={}, message=AGAIN)],
    "as parameters": [called([{"id": "c", "function": {"name": "change", "parameters": {"value": "x"}}}])],
    "as args": [called([{"id": "c", "name": "change", "args": {"value": "x"}}])],
    "as input": [called([{"id": "c", "function": {"name": "change", "arguments": "", "input": {"value": "x"}}}])],
    "as parameters, in pieces": [
        called([{"index": 0, "id": "c", "function": {"name": "change", "parameters": ""}}]),
        called([{"index": 0, "function": {"parameters": '{"value": '}}]),
        called([{"index": 0, "function": {"parameters": '"x"}'}}]),
    ],
    "an empty input before the arguments": [
        called([{"index": 0, "id": "c", "function": {"name": "change", "input": {}}}]),
        called([{"index": 0, "function": {"arguments": '{"value": "x"}'}}]),
    ],
    "as input, and again in a whole message": [
        called([{"index": 0, "id": "c", "function": {"name": "change", "input": {"value": "x"}}}]),
        choice(delta={}, message=AGAIN),
    ],
}


@pytest.mark.parametrize("parts", RUN_ONCE.values(), ids=RUN_ONCE.keys())
async def test_a_call_runs_once_with_what_its_model_wrote(tmp_path: Path, parts: list[Body]) -> None:
    _, changed = await events_of(tmp_path, chunks(*parts, finish("tool_calls")), chunks(text("Done."), finish("stop")))
    assert changed == ["x"]


def to_chunks(deltas: Sequence[ToolCallDelta]) -> list[Body]:
    """The chunks in which an endpoint sends these pieces, and a chunk for each whole message."""
    sent: list[Body] = []
    whole: list[Body] = []
    for delta in deltas:
        function = {"name": delta.name, "arguments": delta.arguments}
        entry = {"index": delta.index, "id": delta.id, "function": present(function)}
        if not delta.is_whole:
            sent.append(called([present(entry)]))
            continue
        if delta.index == 0:
            whole = []
            sent.append(choice(delta={}, message={"role": "assistant", "content": None, "tool_calls": whole}))
        whole.append(present({**entry, "index": None}))
    return sent


def present(fields: Body) -> Body:
    return {name: value for name, value in fields.items() if value is not None}


STREAMED: dict[str, tuple[list[ToolCallDelta], list[ToolCall]]] = {
    **{f"one, {name}": (deltas, ONE) for name, deltas in STREAMS_OF_ONE.items()},
    **{f"two, {name}": (deltas, TWO) for name, deltas in STREAMS_OF_TWO.items()},
    **{
        f"two, {len(streamed)} of them streamed, and a whole message {name}": (
            [ToolCallDelta(place, call.id, call.name, call.arguments_text) for place, call in enumerate(streamed)]
            + repeated,
            TWO,
        )
        for name, repeated in WHOLE_MESSAGES_OF_TWO.items()
        for streamed in (TWO, ONE)
    },
}


@pytest.mark.parametrize(("deltas", "wanted"), STREAMED.values(), ids=STREAMED.keys())
async def test_each_call_runs_once_however_an_endpoint_streams_and_repeats_it(
    tmp_path: Path, deltas: list[ToolCallDelta], wanted: list[ToolCall]
) -> None:
    ran: list[tuple[str, object]] = []

    @tool(read_only=True)
    async def f(x: int = 0) -> str:
        """Finds it."""
        ran.append(("f", {"x": x}))
        return "found"

    @tool(read_only=True)
    async def g(y: int = 0) -> str:
        """Gets it."""
        ran.append(("g", {"y": y}))
        return "got"

    agent = Agent("house", skills=(Skill("s", "S.", tools=(f, g)),))
    answers = [chunks(*to_chunks(deltas), finish("tool_calls")), chunks(text("Done."), finish("stop"))]
    async with OpenAIServer(answers) as endpoint:
        async with serving(tmp_path, agent, model_base_url=endpoint.base_url, model="m") as service:
            events = await service.events(request(agent="house"))
    assert sorted(ran, key=str) == [(call.name, json.loads(call.arguments_text)) for call in wanted]
    assert sum(isinstance(event, ToolCallComplete) for event in events) == len(wanted)
    assert events[-1] == Done(finish_reason="stop")
    assert text_of(events) == "Done."


ENDED_BY: list[tuple[object, object, str | None]] = [
    *((said, None, reason) for said, reason in REASONS),
    *NATIVE_REASONS,
]


@pytest.mark.parametrize(("said", "native", "reason"), ENDED_BY, ids=str)
async def test_a_run_ends_as_the_endpoints_word_for_its_reason_says(
    tmp_path: Path, said: object, native: object, reason: str | None
) -> None:
    answer = chunks(text("So"), choice(delta={}, finish_reason=said, native_finish_reason=native))
    is_malformed = reason == "malformed_function_call"
    events, _ = await events_of(tmp_path, *[answer] * (2 if is_malformed else 1))
    last = events[-1]
    match reason:
        case "malformed_function_call" | "error":
            assert isinstance(last, Error)
            assert last.code == ("model_malformed_call" if is_malformed else "model_aborted")
            assert is_malformed or reason == said or str(said) in last.message
        case "length" | "content_filter" | "refusal":
            assert last == Done(finish_reason=reason)
        case _:
            assert last == Done(finish_reason="stop")
    assert text_of(events) == "So" or is_malformed


@pytest.mark.parametrize("place", ["delta", "message"])
async def test_a_picture_of_the_model_is_shown_as_a_call_that_is_over(tmp_path: Path, place: str) -> None:
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    answer = chunks(choice(**{place: {"content": "", "images": [image]}}), finish("stop"))
    async with answering(tmp_path, [answer] * 3) as (service, client, _):
        events = await service.events(request(agent="house"))
        whole = await complete(client, "house")
        parts = [chunk.choices[0] async for chunk in await complete(client, "house", stream=True)]
    [shown] = [event for event in events if isinstance(event, ToolCallComplete)]
    assert (shown.tool_name, shown.files) == ("image_generation", ({"type": "image", "url": PICTURE},))
    assert text_of(events) == ""
    assert whole.choices[0].message.model_extra == {"images": [image]}
    assert [json.loads(part.delta.model_dump_json())["images"] for part in parts if part.delta.model_extra] == [[image]]
