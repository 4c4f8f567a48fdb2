"""`POST /v1/chat/completions`, as the official client reads it, and what both routes say of text taken back."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from callboard._openai.answer import TAKEN_BACK
from callboard.agents import Agent, RunContext
from callboard.calls import tool
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta, TokenUsage
from callboard.skills import Skill
from callboard_protocol import Event, Message, Reasoning, Rewind, Source, Status, ToolCallComplete, ToolCallStart
from tests.loop.conftest import wants
from tests.openai_client import EVERYTHING, QUESTION, URL, asking
from tests.serving import ScriptedAgent, Service, request, serving

WHOLE_TEXT = "Let me see.\nBoth are fruits."


async def streamed(folder: Path, **fields: Any) -> list[ChatCompletionChunk]:
    async with asking(folder, EVERYTHING) as (_, client):
        stream = await client.chat.completions.create(model="scripted", messages=QUESTION, stream=True, **fields)
        return [chunk async for chunk in stream]


def content(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_an_agent_answers_as_a_model_does(tmp_path: Path) -> None:
    async with asking(tmp_path, EVERYTHING) as (_, client):
        answer = await client.chat.completions.create(model="scripted", messages=QUESTION)
    [choice] = answer.choices
    assert answer.object == "chat.completion"
    assert answer.model == "scripted"
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", WHOLE_TEXT, "stop")
    assert choice.message.tool_calls is None
    assert choice.message.model_extra == {"reasoning_content": "Two words."}
    assert [one.url_citation.model_dump() for one in choice.message.annotations or ()] == [
        {"url": URL, "title": "Apples", "start_index": 11, "end_index": 11}
    ]
    assert answer.usage
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (30, 12, 42)


async def test_a_stream_says_the_same_and_never_asks_the_client_to_run_a_tool(tmp_path: Path) -> None:
    chunks = await streamed(tmp_path)
    assert content(chunks) == WHOLE_TEXT
    assert chunks[0].choices[0].delta.role == "assistant"
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert not any(delta.tool_calls for delta in deltas)
    beside = [delta.model_extra for delta in deltas if delta.model_extra]
    assert [list(extra) for extra in beside] == [["reasoning_content"], ["annotations"]]
    assert beside[0]["reasoning_content"] == "Two words."
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


async def test_openais_helper_reads_several_citations_and_pictures_of_a_stream(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        for name in ("a", "b"):
            file = {"type": "image", "url": f"data:image/png;base64,{name}"}
            yield ToolCallStart(tool_call_id=name, tool_name="image_generation")
            yield ToolCallComplete(tool_call_id=name, result="", files=(file,))
            yield Source(source={"name": name, "url": f"{URL}/{name}"})
            yield Message(content=name)

    async with asking(tmp_path, ScriptedAgent(script)) as (_, client):
        async with client.chat.completions.stream(model="scripted", messages=QUESTION) as stream:
            message = (await stream.get_final_completion()).choices[0].message
    assert [(one.url_citation.title, one.url_citation.end_index) for one in message.annotations or ()] == [
        ("a", 0),
        ("b", 1),
    ]
    images: Any = (message.model_extra or {})["images"]
    assert [image["image_url"]["url"][-1] for image in images] == ["a", "b"]


async def test_the_stream_is_of_openais_form_to_the_letter(tmp_path: Path) -> None:
    async with asking(tmp_path, EVERYTHING) as (service, _):
        body = {"model": "scripted", "messages": QUESTION, "stream": True}
        response = await service.client.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *lines, last = [line for line in response.text.split("\n") if line]
    assert last == "data: [DONE]"
    assert all(line.startswith("data: {") for line in lines)
    for line in lines:
        ChatCompletionChunk.model_validate_json(line.removeprefix("data: "), strict=True)


async def test_status_events_are_what_open_webui_shows(tmp_path: Path) -> None:
    chunks = await streamed(tmp_path, extra_body={"callboard": {"tool_activity": "status"}})
    events = [chunk.model_extra["event"] for chunk in chunks if chunk.model_extra]
    assert content(chunks) == WHOLE_TEXT
    assert {event["type"] for event in events} == {"status"}
    lines = [(event["data"]["description"], event["data"]["done"]) for event in events]
    # How long a call and the run took is the clock's matter.
    assert [(re.sub(r"(under )?[\d.]+ s$", "N s", words), done) for words, done in lines] == [
        ("Running look_up", True),
        ("Running borrow", True),
        ("borrow: 30% Asking", True),
        ("borrow: 60% Asking", True),
        ("borrow: failed after N s", True),
        ("look_up: done after N s", True),
        ("Thinking…", True),
        ("Running look_up", True),
        ("look_up: done after N s", True),
        ("Thinking…", True),
        ("Writing", True),
        ("Plan: 1 of 2: Say", True),
        ("Writing · 3 calls, 1 failed, N s", True),
    ]


class Words:
    """An agent whose model looks a word up and then says what it was told; `asked` is each of its requests."""

    def __init__(self, activity: str = "details") -> None:
        self.asked: list[ModelRequest] = []
        self.activity = activity

        @tool
        async def look_up(word: str) -> str:
            """Looks a word up."""
            return f"{word}: " + "x" * 20_000

        skill = Skill("words", "Words.", tools=(look_up,))
        self.agent = Agent("words", skills=(skill,), model=ScriptedModel(self.script))

    def script(self, request: ModelRequest) -> list[ModelDelta]:
        self.asked.append(request)
        spent = TokenUsage(100, 10, 110)
        if request.messages[-1]["role"] == "user":
            return [TextDelta("I look."), wants("look_up", '{ "word":"apple" }', call_id="call_0"), spent]
        return [TextDelta("It is a fruit."), spent]

    async def ask(self, client: Any, messages: list[Any], **fields: Any) -> Any:
        extra = {"extra_headers": {"X-Callboard-Tool-Activity": self.activity, **fields.pop("extra_headers", {})}}
        return await client.chat.completions.create(model="words", messages=messages, **extra, **fields)


OPEN_WEBUI = {"X-OpenWebUI-User-Id": "u", "X-OpenWebUI-User-Name": "Ad%C3%A8le", "X-OpenWebUI-Chat-Id": "chat"}


@pytest.mark.parametrize("headers", [OPEN_WEBUI, {}], ids=["kept", "not kept"])
async def test_the_next_turn_reads_the_blocks_as_calls_and_a_kept_chat_whole(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    words = Words()
    async with asking(tmp_path, words.agent) as (service, client):
        first = await words.ask(client, QUESTION, extra_headers=headers)
        again = [*QUESTION, first.choices[0].message.model_dump(), {"role": "user", "content": "Sure?"}]
        await words.ask(client, again, extra_headers=headers)
        stored = await calls_of(service, "u")
    result = "apple: " + "x" * 20_000
    _, asked, answered, said, _ = words.asked[2].messages
    [call] = asked["tool_calls"]
    assert asked["content"] == "I look."
    assert (call["function"]["name"], answered["tool_call_id"]) == ("look_up", call["id"])
    assert said == {"role": "assistant", "content": "It is a fruit."}
    if headers:
        assert (call["function"]["arguments"], answered["content"]) == ('{ "word":"apple" }', result)
        assert [one["result"] for one in stored] == [result, result]
    else:
        assert json.loads(call["function"]["arguments"]) == {"word": "apple"}
        assert answered["content"].startswith("apple: xxx")
        assert answered["content"].endswith("\n… [10,007 more characters]")
        assert stored == []


async def calls_of(service: Service, user_id: str) -> list[dict[str, Any]]:
    found = (await service.client.get(f"/v1/tool-calls?user_id={user_id}")).json()["tool_calls"]
    return [
        (await service.client.get(f"/v1/tool-calls/{call['tool_call_id']}?chat_id=chat&user_id={user_id}")).json()
        for call in found
    ]


# --------------------------------------------------------------------------------------------- what an agent takes back


BEFORE = "Let me look."
MEANWHILE = " While it runs:"
HALF = "```\nHalf an answer"
WHOLE = "A whole answer."
LEFT = f"{BEFORE}{MEANWHILE}{WHOLE}"


def hesitant(drafts: int) -> ScriptedAgent:
    """Answers that often before the answer that stands; speaks while its tool runs."""

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content=BEFORE)
        yield ToolCallStart(tool_call_id="a", tool_name="look_up", tool_args="{}")
        yield Message(content=MEANWHILE)
        yield ToolCallComplete(tool_call_id="a", result="a fruit")
        yield Source(source={"name": "Apples", "url": URL})
        for _ in range(drafts):
            yield Reasoning(content="Hm.")
            yield Message(content=HALF)
            # It sends what is held to be joined: a draft that nobody has seen is taken back without a word.
            yield Status(content="Checking")
            yield Rewind()
        yield Reasoning(content="So.")
        yield Message(content=WHOLE)

    return ScriptedAgent(script)


def activities(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("body", [{"callboard": {"tool_activity": name}} for name in names], ids=names)


@activities("none", "details")
async def test_a_stream_of_chunks_says_so_in_words(tmp_path: Path, body: dict[str, Any]) -> None:
    async with asking(tmp_path, hesitant(1)) as (_, client):
        stream = await client.chat.completions.create(model="scripted", messages=QUESTION, stream=True, extra_body=body)
        chunks = [chunk async for chunk in stream]
        whole = await client.chat.completions.create(model="scripted", messages=QUESTION, extra_body=body)
    read = ""
    for chunk in chunks:
        read += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    assert f"{HALF}\n```{TAKEN_BACK}" in read
    assert read.endswith(f"\n\n{WHOLE}")
    message = whole.choices[0].message
    text = message.content or ""
    assert text.replace("\n\n", "")[: len(BEFORE + MEANWHILE)] == BEFORE + MEANWHILE
    assert text.endswith(WHOLE)
    assert message.model_extra == {"reasoning_content": "So."}


@activities("items", "none")
async def test_a_stream_of_items_ends_them_with_the_text_that_is_left(tmp_path: Path, body: dict[str, Any]) -> None:
    async with asking(tmp_path, hesitant(2)) as (_, client):
        stream = await client.responses.create(model="scripted", input=QUESTION, stream=True, extra_body=body)
        events: list[Any] = [event async for event in stream]
    added = [event.output_index for event in events if event.type == "response.output_item.added"]
    assert added == list(range(len(added)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    texts = [(item.status, item.content[0].text) for item in done if item.type == "message"]
    assert "".join(text for _, text in texts) == LEFT
    assert [status for status, text in texts if not text] == ["incomplete"] * 2
    ended = [event.text for event in events if event.type == "response.output_text.done"]
    assert "".join(ended) == LEFT
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas.count(f"{HALF}\n```{TAKEN_BACK}") == 2
    assert events[-1].response.output_text == LEFT


async def test_the_chat_keeps_what_is_left(tmp_path: Path) -> None:
    async with serving(tmp_path, hesitant(2)) as service:
        events = await service.events(request(chat_id="c", message_id="m"))
        kept = (await service.client.get("/v1/chats/c/messages")).text
    assert [event.type for event in events].count("rewind") == 2
    assert WHOLE in kept
    assert "Half" not in kept
