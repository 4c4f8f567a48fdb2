"""The tool `model`, and the runs that follow its choice."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import Agent
from callboard.errors import InvalidArguments, ToolError
from callboard.models import OpenAICompatible, ScriptedModel
from callboard.skills import ModelChoice
from callboard.storage import Store
from callboard_protocol import Event, Message, Status
from tests.fakes.openai_server import OpenAIServer, chunks, text
from tests.serving import Service, request, serving
from tests.skills.calling import Caller

NAMES = ("small-8b", "large-70b", "large-vision")


@asynccontextmanager
async def endpoint(store: Store, names: Sequence[str] = NAMES, default: str | None = None) -> AsyncIterator[Caller]:
    """A caller whose server has an endpoint with these models."""
    async with OpenAIServer([], names) as server:
        model = OpenAICompatible(server.base_url, api_key="key", model=default, max_retries=0)
        yield Caller(store, model)
        await model.aclose()


async def test_the_models_are_listed_all_or_by_a_part_of_their_names(store: Store) -> None:
    async with endpoint(store) as ann:
        assert (await ann.call(ModelChoice(), action="list"))["models"] == list(NAMES)
        assert (await ann.call(ModelChoice(), action="list", name="LARGE"))["models"] == ["large-70b", "large-vision"]
    async with endpoint(store, [f"m{number}" for number in range(130)]) as ann:
        listed = await ann.call(ModelChoice(), action="list")
        assert (len(listed["models"]), listed["left_out"]) == (100, 30)


async def test_the_choice_holds_for_its_chat_until_it_is_switched_back(store: Store) -> None:
    async with endpoint(store) as ann:
        await ann.say("hi")
        await ann.but(chat_id="other").say("hello")
        assert await ann.call(ModelChoice(), action="current") == {"model": "small-8b", "chosen_for_this_chat": False}
        await ann.call(ModelChoice(), action="switch", name="large-70b")
        assert await ann.call(ModelChoice(), action="current") == {"model": "large-70b", "chosen_for_this_chat": True}
        other = await ann.but(chat_id="other").call(ModelChoice(), action="current")
        assert other == {"model": "small-8b", "chosen_for_this_chat": False}
        await ann.call(ModelChoice(), action="switch", name="small-8b")
        assert await store.chats("ann").chosen_model("chat") is None


async def test_a_model_that_is_not_listed_is_not_switched_to(store: Store) -> None:
    async with endpoint(store) as ann:
        await ann.say("hi")
        with pytest.raises(ToolError, match="no model 'large-71b': did you mean large-70b"):
            await ann.call(ModelChoice(), action="switch", name="large-71b")
        with pytest.raises(InvalidArguments, match="'switch' needs the argument 'name'"):
            await ann.call(ModelChoice(), action="switch")
        assert await store.chats("ann").chosen_model("chat") is None


async def test_reason_is_given_if_no_model_can_be_chosen(store: Store) -> None:
    async with endpoint(store) as ann:
        with pytest.raises(ToolError, match="not a saved chat"):
            await ann.but(chat_id=None).call(ModelChoice(), action="switch", name="large-70b")
        with pytest.raises(ToolError, match="does not store this chat"):
            await ann.but(chat_id="unknown").call(ModelChoice(), action="switch", name="large-70b")
        assert (await ann.but(chat_id=None).call(ModelChoice(), action="current"))["model"] == "small-8b"
    with pytest.raises(ToolError, match="CALLBOARD_MODEL_BASE_URL"):
        await Caller(store, ScriptedModel()).call(ModelChoice(), action="list")
    async with endpoint(store, names=()) as ann:
        with pytest.raises(ToolError, match="404"):
            await ann.call(ModelChoice(), action="list")


def said(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Message))


def notices(events: list[Event]) -> list[str]:
    return [event.content.split(",")[0] for event in events if isinstance(event, Status)]


@asynccontextmanager
async def chatting(folder: Path, names: Sequence[str]) -> AsyncIterator[Service]:
    """A server with these models, each of which says its name; ann has chosen the large one for her chat."""
    async with OpenAIServer(lambda body: chunks(text(f"I am {body['model']}.")), names) as endpoint:
        settings = {"model_base_url": endpoint.base_url, "model": "small-8b"}
        async with serving(folder, Agent("scripted"), **settings) as service:
            await service.events(ann("chat"))
            await service.state.store.chats("ann").choose_model("chat", "large-70b")
            yield service


def ann(chat_id: str, **fields: Any) -> dict[str, Any]:
    return request(chat_id=chat_id, user={"id": "ann"}, **fields)


@pytest.mark.parametrize(
    ("names", "answer", "told"),
    [
        (NAMES, "I am large-70b.", []),
        (["small-8b"], "I am small-8b.", ["The model large-70b"]),
        # An endpoint that lists none may have it.
        ([], "I am large-70b.", []),
    ],
)
async def test_chat_is_answered_by_its_model_or_a_missing_one_is_reported(
    tmp_path: Path, names: Sequence[str], answer: str, told: list[str]
) -> None:
    async with chatting(tmp_path, names) as service:
        events = await service.events(ann("chat"))
        assert (said(events), notices(events)) == (answer, told)
        for other in (ann("other"), ann("chat", task="title_generation")):
            assert said(await service.events(other)) == "I am small-8b."
