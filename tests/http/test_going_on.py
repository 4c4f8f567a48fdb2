"""What a client of OpenAI's API is not told of, or leaves out, comes from the store: each call where it was."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from callboard.agents import Agent
from callboard.calls import tool
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import Skill
from tests.http.test_offered_tools import BOTH, House, as_sent_back, complete, function, result
from tests.loop.conftest import wants
from tests.openai_client import asking
from tests.serving import Service

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
