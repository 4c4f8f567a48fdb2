"""What the model is told of earlier turns: calls that a client leaves out, thoughts, and sources that were cited."""

import json
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from callboard import ToolContext, ToolResult
from callboard._formats import ToolFormat
from callboard._history.sources import NOTHING_CITED
from callboard.agents import Agent, RunContext
from callboard.calls import tool
from callboard.models import ModelDelta, ModelRequest, OpenAICompatible, ScriptedModel, TextDelta
from callboard.skills import Skill
from callboard.skills.web.skill import to_source
from callboard_protocol import Done, Error, Event, FinishReason, Message, Source, ToolCallComplete, ToolCallStart
from tests.fakes.openai_server import OpenAIServer, call, chunks, text
from tests.http.test_offered_tools import BOTH, House, as_sent_back, complete, function, result
from tests.loop.conftest import wants
from tests.openai_client import asking
from tests.pipe.loader import PIPE
from tests.serving import ScriptedAgent, Service, request, serving

IN_CHAT: Any = {"X-OpenWebUI-User-Id": "u", "X-OpenWebUI-Chat-Id": "c"}


class Dice:
    """An agent that rolls a die for each question and says always the same; `told` is what its model was sent last."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self._rolls = 0

        @tool
        async def roll() -> str:
            """Rolls."""
            self._rolls += 1
            return f"roll {self._rolls}"

        skill = Skill("dice", "Dice.", tools=(roll,))
        self.agent = Agent("dice", skills=(skill,), model=ScriptedModel(self._script))

    def _script(self, request: ModelRequest) -> Iterable[ModelDelta]:
        self.told = [
            (one["role"], [call["function"]["name"] for call in one.get("tool_calls") or ()] or one["content"])
            for one in request.messages
        ]
        last = request.messages[-1]
        if last["role"] == "user" and "roll" in last["content"]:
            return [TextDelta("Let me roll. "), wants("roll")]
        return [TextDelta("Rolled.")]

    async def ask(self, client: AsyncOpenAI, *messages: dict[str, str], activity: str = "none", **headers: str) -> str:
        extra: Any = {**IN_CHAT, "X-Callboard-Tool-Activity": activity, **headers}
        answer = await client.chat.completions.create(model="dice", messages=list[Any](messages), extra_headers=extra)
        return str(answer.choices[0].message.content)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def turn(question: str, number: int) -> list[tuple[str, Any]]:
    """A turn as the model lived through it."""
    return [("user", question), ("assistant", ["roll"]), ("tool", f"roll {number}"), ("assistant", "Rolled.")]


@pytest.mark.parametrize("activity", ["none", "details"])
async def test_the_calls_of_earlier_answers_are_replayed_whatever_the_client_was_told(
    tmp_path: Path, activity: str
) -> None:
    dice = Dice()
    async with asking(tmp_path, dice.agent) as (_, client):
        first = await dice.ask(client, user("roll"), activity=activity)
        second = await dice.ask(client, user("roll"), assistant(first), user("roll"), activity=activity)
        history = [user("roll"), assistant(first), user("roll"), assistant(second)]
        await dice.ask(client, *history, user("What came?"), activity=activity)
    assert dice.told == [*turn("roll", 1), *turn("roll", 2), ("user", "What came?")]


async def test_a_regenerated_answer_has_the_calls_that_led_to_it(tmp_path: Path) -> None:
    dice = Dice()
    async with asking(tmp_path, dice.agent) as (_, client):
        await dice.ask(client, user("roll"))
        again = await dice.ask(client, user("roll"))
        await dice.ask(client, user("roll"), assistant(again), user("roll"))
        await dice.ask(client, user("roll"), assistant(again), user("What came?"))
        branched = dice.told
        await dice.ask(client, user("roll"), assistant("I never rolled."), user("What came?"))
    # The third roll followed an answer: it is not the answer to the first question.
    assert branched[:3] == [("user", "roll"), ("assistant", ["roll"]), ("tool", "roll 2")]
    assert dice.told == [("user", "roll"), ("assistant", "I never rolled."), ("user", "What came?")]


async def test_what_another_user_was_told_is_not_replayed(tmp_path: Path) -> None:
    dice = Dice()
    async with asking(tmp_path, dice.agent) as (_, client):
        said = await dice.ask(client, user("roll"))
        eve = {"X-OpenWebUI-User-Id": "eve"}
        await dice.ask(client, user("roll"), assistant(said), user("What came?"), **eve)
    assert dice.told == [("user", "roll"), ("assistant", said), ("user", "What came?")]


async def respond(client: AsyncOpenAI, said: Any, previous: Any = None, **fields: Any) -> Any:
    brought = {"previous_response_id": previous.id} if previous else {}
    return await client.responses.create(model="dice", input=said, **brought, **fields)


async def test_a_response_goes_on_from_another_with_every_call_of_it(tmp_path: Path) -> None:
    dice = Dice()
    shots: Any = [user("Hello"), assistant("Hi."), user("roll")]
    async with asking(tmp_path, dice.agent) as (_, client):
        first = await respond(client, shots, instructions="Speak of dice.")
        second = await respond(client, "roll", first)
        other = await respond(client, "roll", first)
        await respond(client, "What came?", second)
        whole = dice.told
        await respond(client, "What came?", other, instructions="Be brief.")
    begun = [("user", "Hello"), ("assistant", "Hi."), *turn("roll", 1)]
    assert whole == [*begun, *turn("roll", 2), ("user", "What came?")]
    assert dice.told == [("system", "Be brief."), *begun, *turn("roll", 3), ("user", "What came?")]
    assert (second.previous_response_id, first.previous_response_id) == (first.id, None)


@pytest.mark.parametrize(
    ("first_fields", "then"),
    [
        ({"store": False}, {}),
        ({"extra_body": {"callboard": {"task": "title_generation"}}}, {}),
        ({"user": "ann"}, {"user": "eve"}),
        ({"user": "ann"}, {}),
        ({"extra_headers": IN_CHAT}, {"extra_headers": IN_CHAT}),
        ({"extra_headers": {**IN_CHAT, "X-OpenWebUI-Chat-Id": "local:1"}, "store": False}, {}),
        ({}, {"extra_body": {"callboard": {"chat_id": "another"}}}),
    ],
    ids=[
        "not-stored",
        "background-task",
        "another-user",
        "nobody",
        "of-open-webui",
        "of-no-saved-chat",
        "another-chat",
    ],
)
async def test_a_response_that_is_not_kept_or_not_the_users_is_refused_in_words(
    tmp_path: Path, first_fields: Any, then: Any
) -> None:
    dice = Dice()
    async with asking(tmp_path, dice.agent) as (_, client):
        first = await respond(client, "roll", **first_fields)
        with pytest.raises(openai.BadRequestError, match=f"there is no response '{first.id}'"):
            await respond(client, "What came?", first, **then)


async def chats_of(service: Service) -> set[str]:
    calls = (await service.client.get("/v1/tool-calls", params={"limit": 200})).json()["tool_calls"]
    return {call["chat_id"] for call in calls}


async def test_a_chat_without_a_name_is_kept_only_as_long_as_something_refers_to_it(tmp_path: Path) -> None:
    house = House(BOTH, [TextDelta("It is open.")], BOTH)
    dice = Dice()
    async with asking(tmp_path, house.agent, dice.agent) as (service, client):
        first = (await complete(client, tools=[function()])).choices[0].message
        [waiting] = await chats_of(service)
        asked = [{"role": "user", "content": "Open it."}, as_sent_back(first), result(first.tool_calls[0], "open")]
        await complete(client, asked, tools=[function()])
        # Which waits until what is to be forgotten is.
        await service.state.runs.close()
        assert await chats_of(service) == set()
        assert waiting.startswith("own:")
    async with asking(tmp_path, dice.agent) as (service, client):
        await respond(client, "roll")
        assert len(await chats_of(service)) == 1
        assert await service.state.store.drop_own_chats(time.time() - 60) == 0
        assert await service.state.store.drop_own_chats(time.time() + 60) == 1
        assert await chats_of(service) == set()


# ---------------------------------------------------------------------------------------- the thoughts of a ReAct model


SECRET = "k3y-that-nobody-may-read"
THOUGHT = "Without the card I cannot know.\nSo I look."
ROUND = f'Thought: {THOUGHT}\nAction: look_up\nAction Input: {{"word": "storm"}}'
USER = {"id": "u"}
ASKED = {"role": "user", "content": "hi"}
SECOND_TURN: Any = [
    ASKED,
    {"role": "assistant", "id": "m1", "content": "It is wind."},
    {"role": "user", "content": "and?"},
]


class Reader:
    """An agent whose model looks a word up and answers; `requests` are what it was sent."""

    def __init__(self, tool_format: ToolFormat, thought: str = ROUND) -> None:
        self.requests: list[ModelRequest] = []

        @tool
        async def look_up(word: str) -> str:
            """Looks up."""
            return f"{word}: wind"

        def script(sent: ModelRequest) -> Iterable[ModelDelta]:
            self.requests.append(sent)
            return [TextDelta(thought if len(self.requests) == 1 else "Final Answer: It is wind.")]

        skill = Skill("words", "Words.", tools=(look_up,))
        self.agent = Agent("scripted", skills=(skill,), model=ScriptedModel(script), tool_format=tool_format)

    @property
    def told(self) -> list[Any]:
        """The messages of the last request, without the system prompt."""
        return [message for message in self.requests[-1].messages if message["role"] != "system"]


async def test_a_thought_is_read_again_on_the_next_turn_after_a_restart_of_the_server(tmp_path: Path) -> None:
    before = Reader("react")
    after = Reader("react", "Final Answer: More wind.")
    async with serving(tmp_path, before.agent) as service:
        await service.events(request(chat_id="c", message_id="m1", user=USER))
    assert before.told[1] == {"role": "assistant", "content": ROUND}
    async with serving(tmp_path, after.agent) as service:
        await service.events(request(chat_id="c", message_id="m2", user=USER, messages=SECOND_TURN))
    assert [message["content"] for message in after.told] == [
        "hi",
        ROUND,
        "Observation: storm: wind",
        "It is wind.",
        "and?",
    ]


@pytest.mark.parametrize("tool_format", ["native", "auto", "xml", "rescue", "hermes"])
async def test_a_model_of_another_format_that_goes_on_with_the_chat_is_not_told_of_it(
    tmp_path: Path, tool_format: ToolFormat
) -> None:
    other = Reader(tool_format, "More wind.")
    async with serving(tmp_path, Reader("react").agent) as service:
        await service.events(request(chat_id="c", message_id="m1", user=USER))
    async with serving(tmp_path, other.agent) as service:
        await service.events(request(chat_id="c", message_id="m2", user=USER, messages=SECOND_TURN))
    assert "look_up" in str(other.told)
    assert "thought" not in str(other.told).lower()


async def test_a_thought_is_kept_without_secrets(tmp_path: Path) -> None:
    reader = Reader("react", ROUND.replace("the card", SECRET))
    async with serving(tmp_path, reader.agent, model_api_key=SECRET) as service:
        await service.events(request(chat_id="c", message_id="m1", user=USER))
        history = await service.state.store.chats("u").history("c")
    [record] = history.calls
    assert record.details["thought"].startswith("Without ")
    assert SECRET not in str(record.details)


async def test_a_thought_that_holds_what_became_a_secret_later_is_not_told(tmp_path: Path) -> None:
    before = Reader("react", ROUND.replace("the card", SECRET))
    after = Reader("react", "Final Answer: More wind.")
    async with serving(tmp_path, before.agent) as service:
        await service.events(request(chat_id="c", message_id="m1", user=USER))
    async with serving(tmp_path, after.agent, model_api_key=SECRET) as service:
        await service.events(request(chat_id="c", message_id="m2", user=USER, messages=SECOND_TURN))
    assert "Thought: Without" in str(after.told)
    assert SECRET not in str(after.told)


# ----------------------------------------------------------------------------------------- the sources of earlier turns


@tool
async def search(context: ToolContext, query: str) -> list[dict[str, Any]]:
    """Searches.

    Args:
        query: For what.
    """
    return [{"source_number": context.sources.next(), "content": f"{query} {part}"} for part in ("one", "two")]


@tool
async def look_up(context: ToolContext, query: str) -> ToolResult:
    """Looks something up.

    Args:
        query: What.
    """
    number = context.sources.next()
    snippet = f"All of {query}."
    item = {"source_number": number, "title": query, "url": f"https://{query}.example", "snippet": snippet}
    return ToolResult(data=[item], sources=(to_source(item, snippet),))


async def turns(folder: Path, answers: list[Any], *questions: str) -> list[list[Event]]:
    """The events of one turn of a chat after the other, as an agent with `look_up` answers."""
    async with OpenAIServer(answers) as endpoint:
        model = OpenAICompatible(endpoint.base_url, model="m")
        agent = Agent("scripted", skills=(Skill("search", "Searches.", tools=(look_up,)),), model=model)
        history: list[dict[str, Any]] = []
        seen = []
        async with serving(folder, agent) as service:
            for question in questions:
                history.append({"role": "user", "content": question})
                seen.append(await service.events(request(chat_id="c", messages=history)))
                stored = (await service.client.get("/v1/chats/c/messages")).json()["messages"]
                history = [_as_sent(message) for message in stored]
        await model.aclose()
    return seen


def drawn(events: list[Event]) -> str:
    """The answer's text as the pipe draws it, without its calls."""
    transcript = PIPE.Transcript()
    for event in events:
        if not event.type.startswith("tool"):
            transcript.apply(event.model_dump(mode="json"))
    return str(transcript.render())


async def test_a_source_of_an_earlier_turn_is_told_again_where_it_is_cited_again(tmp_path: Path) -> None:
    answers = [
        chunks(call("look_up", '{"query": "apple"}', call_id="a")),
        chunks(text("Apples are red [source1].")),
        chunks(text("As I said, "), text("red [sou"), text("rce1"), text("]. Really [source1].")),
        chunks(call("look_up", '{"query": "pear"}', call_id="b")),
        chunks(text("Both are fruit [source1, source2].")),
        chunks(text("Goodbye [source7].")),
    ]
    first, again, both, bye = await turns(tmp_path, answers, "apples?", "sure?", "pears?", "bye")

    def told(events: list[Event]) -> list[Source]:
        return [event for event in events if isinstance(event, Source)]

    assert told(again) == told(first)
    assert [source.source["url"] for source in told(both)] == ["https://pear.example", "https://apple.example"]
    assert told(bye) == []
    assert drawn(again) == "As I said, red [1#source1]. Really [1#source1]."
    assert drawn(both) == "Both are fruit [2#source1, 1#source2]."


def _ended(reason: FinishReason) -> Event:
    return Done(finish_reason=reason)


async def replayed_results(folder: Path, texts: tuple[str, str], last: Event, **settings: Any) -> list[str]:
    """What the next turn is told of two searches, with sources 1 and 2, 3 and 4; `texts` are before and after them."""
    told: list[str] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        if told_now := [message["content"] for message in context.messages if message["role"] == "tool"]:
            told.extend(told_now)
            return
        yield Message(content=texts[0])
        for call_id, first in (("a", 1), ("b", 3)):
            found = [{"source_number": number, "content": f"{number}"} for number in (first, first + 1)]
            yield ToolCallStart(tool_call_id=call_id, tool_name="search")
            yield ToolCallComplete(tool_call_id=call_id, result=json.dumps(found))
        if texts[1]:
            yield Message(content=texts[1])
        yield last

    async with serving(folder, ScriptedAgent(script), **settings) as service:
        await service.events(request(chat_id="c"))
        stored = (await service.client.get("/v1/chats/c/messages")).json()["messages"]
        await service.events(request(chat_id="c", messages=[*map(_as_sent, stored), {"role": "user", "content": "?"}]))
    return [_numbers(content) for content in told]


def _numbers(content: str) -> str:
    """The numbers of the sources that a result has left, `none` for the sentence in the place of all."""
    if content == NOTHING_CITED:
        return "none"
    return " ".join(str(item["source_number"]) for item in json.loads(content))


@pytest.mark.parametrize(
    ("texts", "last", "setting", "told"),
    [
        (("I look.", "It is so [source2]."), _ended("stop"), "cited", ["2", "3 4"]),
        (("I know [source3].", "It is so."), _ended("stop"), "cited", ["1 2", "3"]),
        (("I look.", "It is so."), _ended("stop"), "always", ["none", "none"]),
        (("I look.", "It is so [source2]."), _ended("stop"), "never", ["1 2", "3 4"]),
        (("I look.", "It is so [source2]"), _ended("length"), "always", ["1 2", "3 4"]),
        (("I look.", "It is so [source2]"), _ended("cancelled"), "always", ["1 2", "3 4"]),
        (("I look.", "It is so [source2]"), Error(message="it broke"), "always", ["1 2", "3 4"]),
        (("I look [source2].", ""), _ended("stop"), "always", ["1 2", "3 4"]),
    ],
)
async def test_results_are_compacted_only_by_an_answer_that_came_to_its_end(
    tmp_path: Path, texts: tuple[str, str], last: Event, setting: str, told: list[str]
) -> None:
    assert await replayed_results(tmp_path, texts, last, compact_results=setting) == told


def _as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """A stored message as a client sends it, its results cut for display."""
    sent = {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id") if message[key] is not None}
    return {"content": "cut" if message["role"] == "tool" else None, **sent}
