"""How the answer of an endpoint ends: for the pipe, for chat completions and for responses.

`ENDINGS` has the endings of docs/reference/endings.md that the model's endpoint decides. Which word of which endpoint
means which ending is proven in `tests/models`.
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
from callboard.calls import tool
from callboard.skills import Skill
from callboard_protocol import Done, Error, Event, Rewind, ToolCallComplete
from tests.fakes.openai_server import Answer, Body, OpenAIServer, Raw, call, chunks, finish, text
from tests.http.test_openai_requests import complete, respond
from tests.loop.conftest import text_of
from tests.openai_client import asking
from tests.serving import Service, request

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


ENDINGS = {
    "a filter in the middle": filtered(text("The recipe is"), words="The recipe is"),
    "a filter before a word": filtered(words="The content filter of the model's endpoint blocked the answer."),
    "a refusal": refused(refuses(""), refuses("I cannot help "), refuses("with that."), finish("stop"), words=NO),
    "a refusal after words": refused(text("Hm."), refuses(NO), finish("stop"), words=f"Hm.\n\n{NO}"),
    "a refusal with a call": refused(CHANGE, refuses(NO), finish("tool_calls"), words=NO),
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
    "a call that the endpoint could not read": Ending(
        [chunks(refuses(MALFORMED), finish("malformed_function_call"))] * 2, "model_malformed_call", said=MALFORMED
    ),
    "the token limit": Ending(
        [chunks(text("Half an"), finish("length"))],
        Done(finish_reason="length"),
        "Half an",
        chat="length",
        response=("incomplete", "max_output_tokens"),
    ),
    "an unknown reason": Ending(
        [chunks(text("Yes."), finish("moonrise"))], Done(finish_reason="stop"), "Yes.", chat="stop"
    ),
}


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


def check_events(ending: Ending, events: list[Event]) -> None:
    last = events[-1]
    if isinstance(last, Error):
        assert last.code == ending.last
        assert ending.said in last.message
        assert text_of(events) == ending.words
    else:
        assert last == ending.last
        assert ending.words in text_of(events)


async def check_completion(ending: Ending, client: AsyncOpenAI, stream: bool) -> None:
    async def complete_all() -> Any:
        answer = await complete(client, "house", stream=stream)
        return [chunk async for chunk in answer] if stream else answer

    if isinstance(ending.last, str):
        with pytest.raises(openai.APIError) as raised:
            await complete_all()
        assert ending.said in raised.value.message
        return
    answer = await complete_all()
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


async def check_response(ending: Ending, client: AsyncOpenAI, stream: bool) -> None:
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


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
async def test_each_ending_is_told_in_the_words_of_each_interface_and_no_call_runs(
    tmp_path: Path, ending: Ending
) -> None:
    async with answering(tmp_path, [*ending.answers] * 5) as (service, client, changed):
        check_events(ending, await service.events(request(agent="house")))
        for stream in (False, True):
            await check_completion(ending, client, stream)
            await check_response(ending, client, stream)
    assert changed == []


FORM: Any = {"type": "function", "function": {"name": "place", "parameters": {"type": "object", "properties": {}}}}
NO_FORMS = {
    "a refusal": chunks(refuses(NO), finish("stop")),
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


GROQ = {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<function=change{"}
MALFORMED_CALLS = {
    "by its reason": chunks(choice(delta={"reasoning": "hm"}), text("I look."), finish("MALFORMED_FUNCTION_CALL")),
    "by its status": Raw([json.dumps({"error": GROQ}).encode()], status=400),
}


@pytest.mark.parametrize("malformed", MALFORMED_CALLS.values(), ids=MALFORMED_CALLS.keys())
async def test_a_call_that_the_endpoint_could_not_read_is_asked_for_once_more(
    tmp_path: Path, malformed: Answer
) -> None:
    answers = [malformed, chunks(CHANGE, finish("tool_calls")), chunks(text("Done."), finish("stop"))]
    async with answering(tmp_path, answers) as (service, _, changed):
        events = await service.events(request(agent="house"))
    assert changed == ["x"]
    said = events[events.index(Rewind()) :] if Rewind() in events else events
    assert (text_of(said), events[-1]) == ("Done.", Done(finish_reason="stop"))


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
