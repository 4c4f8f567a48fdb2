"""Every name that models invent for a tool, called in a real run: the tool behind it does what the name says."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent
from callboard._history import Turn
from callboard.agents import Limits
from callboard.calls import ToolContext, tool
from callboard.skills import (
    Clock,
    HomeAssistant,
    HomeAssistantIntents,
    Memory,
    ModelChoice,
    PastChats,
    Searxng,
    Seerr,
    SelfNotes,
    Skill,
    WebSearch,
)
from callboard.skills import Profile as ProfileSkill
from callboard.storage import Store
from callboard_formats.aliases import MEANINGS, Meaning
from callboard_protocol import Event, ToolCallComplete, ToolCallError, ToolCallStart
from tests.fakes.home_assistant import TOKEN, HomeAssistantServer
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text
from tests.fakes.seerr import KEY, SeerrServer, movie
from tests.serving import Service, request, serving
from tests.skills.web.services import searxng
from tests.skills.web.sites import Heard, Reply, Site, page
from tests.storage.turns import StoredSteps

pytestmark = pytest.mark.slow

Arguments = dict[str, Any]
Written = tuple[str, Arguments]


@dataclass
class Scene:
    """A server with all tools and all services; `calls` is what its model writes in the next run."""

    service: Service
    home: HomeAssistantServer
    seerr: SeerrServer
    page_url: str
    calls: list[Written] = field(default_factory=list)
    runs: int = 0

    @property
    def store(self) -> Store:
        return self.service.state.store

    async def play(self, *calls: Written, agent: str = "everything") -> list[Event]:
        """The events of a run in which the user agrees to everything."""
        self.calls[:] = calls
        self.runs += 1
        run_id = f"run_{self.runs}"
        body = request(agent=agent, user={"id": "ann"}, chat_id=f"chat_{self.runs}", run_id=run_id)
        return await self.service.events_with_answer(body, True)

    async def told(self, *calls: Written, agent: str = "everything") -> list[str]:
        """What the calls of a run answered, in their order; every one of them has to."""
        events = await self.play(*calls, agent=agent)
        assert [event for event in events if isinstance(event, ToolCallError)] == []
        answers = {event.tool_call_id: event.result for event in events if isinstance(event, ToolCallComplete)}
        ids = [event.tool_call_id for event in events if isinstance(event, ToolCallStart)]
        assert len(ids) == len(calls)
        return [answers[call_id] for call_id in ids]

    async def past(self, number: int) -> "Past":
        """What the user has from before, so many of each."""
        memories = self.store.memories("ann")
        profile = self.store.profile("ann")
        kept = [(await memories.add(f"A fact {self.runs}-{one}."))[0].id for one in range(number)]
        await profile.put("diet", "text", "vegan")
        chats = [f"past_{self.runs}_{one}" for one in range(number)]
        for chat_id in chats:
            await profile.put(f"fact_{chats.index(chat_id)}", "boolean", True)
            journal = StoredSteps(self.store, Turn(chat_id, f"run_{chat_id}", None, "ann", "Which tea is best?"))
            await journal.begin()
            await journal.finish("Green tea.", is_answered=True)
        return Past(self.page_url, kept, chats)


@asynccontextmanager
async def staged(folder: Path, *agents: Callable[[HomeAssistantServer], Agent]) -> AsyncIterator[Scene]:
    calls: list[Written] = []

    def answer(body: Body) -> Answer:
        if body["messages"][-1]["role"] == "tool":
            return chunks(text("Done."), finish("stop"))
        made = [
            call(name, json.dumps(arguments), index=index, call_id=f"c{index}")
            for index, (name, arguments) in enumerate(calls)
        ]
        return chunks(*made, finish("tool_calls"))

    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(OpenAIServer(answer, ["small", "large"]))
        engine = await stack.enter_async_context(Site(reddit_too))
        site = await stack.enter_async_context(Site(page("<p>A page about lamps.</p>")))
        home = await stack.enter_async_context(HomeAssistantServer())
        seerr = await stack.enter_async_context(SeerrServer())
        seerr.add(movie(7, "Dune", "2021-01-01"))
        seerr.own("movie", 7, 5)
        skills = (
            WebSearch([Searxng(engine.url)], allowed_hosts=["localhost"]),
            Memory(),
            ProfileSkill(),
            PastChats(),
            SelfNotes(),
            Clock(),
            ModelChoice(),
            HomeAssistant(home.url, TOKEN),
            Seerr(seerr.url, KEY),
        )
        everything = Agent("everything", skills=skills, limits=Limits(max_tool_calls=200))
        others = [make(home) for make in agents]
        service = await stack.enter_async_context(serving(folder, everything, *others, model_base_url=model.base_url))
        yield Scene(service, home, seerr, f"http://localhost:{site.port}/", calls)


def reddit_too(heard: Heard) -> Reply:
    """SearXNG, whose results are of Reddit where that is asked for."""
    found = searxng(heard)
    if "site:reddit.com" not in heard.query["q"]:
        return found
    return Reply(found.body.replace(b"stage.example", b"www.reddit.com"), 200, found.headers)


@dataclass(frozen=True)
class Past:
    """What a scene has of each name's own."""

    page_url: str
    memory_ids: Sequence[int]
    chat_ids: Sequence[str]


Examples = Callable[[Past, int], Arguments]
"""The arguments of the nth name, now in the tool's own words and now in invented ones."""


def either(*examples: Arguments) -> Examples:
    return lambda _, number: examples[number % len(examples)]


BED = either({"name": "Bed Light"}, {"entity_id": "light.bed_light"}, {"targets": ["bed light"]})
DOOR = either({"name": "Garage Door"}, {"entity_id": "cover.garage_door", "domain": ["cover"]})
DUNE = either({"id": 7, "type": "movie"}, {"tmdbId": 7, "mediaType": "movie"}, {"media_id": "7", "kind": "movie"})
NOTE = either({"text": "Be brief."}, {"content": "Be brief."}, {"note": "Be kind."})
SOUGHT = either({"query": "lamps"}, {"q": "lamps"}, {"search_query": "lamps"})

CASES: dict[str, tuple[Examples, str]] = {
    "google": (SOUGHT, "https://stage.example/1"),
    "search_news": (either({"query": "lamps"}, {"topic": "lamps"}), "2026-01-02"),
    "search_reddit": (either({"query": "lamps"}, {"q": "lamps"}), "https://www.reddit.com/1"),
    "open_url": (lambda past, n: {("url", "link", "uri")[n % 3]: past.page_url}, "A page about lamps."),
    "save_memory": (lambda _, n: {("text", "content", "fact")[n % 3]: f"Likes tea number {n}."}, "stored"),
    "recall": (either({"query": "fact"}, {}, {"q": "fact"}), "memory_id"),
    "update_memory": (
        lambda past, n: {("memory_id", "id")[n % 2]: past.memory_ids[n], ("text", "content")[n % 2]: f"New {n}."},
        "updated",
    ),
    "delete_memory": (lambda past, n: {("id", "memory_id")[n % 2]: past.memory_ids[n]}, "deleted"),
    "retrieve_conversation_history": (either({"query": "best tea"}, {"keywords": "best tea"}), "Which tea is best?"),
    "get_history": (either({"limit": 3}, {"n": 4}), "began_with"),
    "forget_conversation": (lambda past, n: {("chat_id", "conversation_id")[n % 2]: past.chat_ids[n]}, "forgotten"),
    "get_profile": (either({}, {"name": "diet"}, {"key": "diet"}), "vegan"),
    "set_profile": (either({"name": "diet", "value": "vegan"}, {"key": "diet", "value": "vegan"}), "vegan"),
    "profile_delete": (lambda _, n: {("name", "attribute")[n % 2]: f"fact_{n}"}, "deleted"),
    "get_self": (either({}), "description"),
    "reflect": (NOTE, '"note"'),
    "self_develop": (NOTE, "version"),
    "get_time": (either({"timezone": "Asia/Tokyo"}, {"zone": "Asia/Tokyo"}, {"tz": "Asia/Tokyo"}), "Asia/Tokyo"),
    "turn_on": (BED, "light.turn_on"),
    "turn_off": (BED, "light.turn_off"),
    "HassToggle": (BED, "light.toggle"),
    "HassOpenCover": (DOOR, "cover.open_cover"),
    "HassCloseCover": (DOOR, "cover.close_cover"),
    "HassLightSet": (
        either({"name": "Bed Light", "brightness": 40}, {"entity_id": "light.bed_light", "level_percent": "40"}),
        "light.turn_on {'brightness_pct': 40}",
    ),
    "HassClimateSetTemperature": (
        either({"name": "HVAC", "temperature": 21}, {"entity_id": "climate.hvac", "target_temperature": 21}),
        "climate.set_temperature {'temperature': 21.0}",
    ),
    "HassSetPosition": (
        either({"name": "Living Room Window", "position": 25}, {"device": "living room window", "level_percent": 25}),
        "cover.set_cover_position {'position': 25}",
    ),
    "set_device": (
        either({"device": "bed light", "state": "on"}, {"name": "Bed Light", "command": "on"}),
        "light.turn_on",
    ),
    "HassGetState": (BED, "light.bed_light"),
    "GetLiveContext": (either({}, {"area": "Kitchen"}, {"query": "kitchen lights"}), "light.kitchen_lights"),
    "list_models": (either({}, {"filter": "large"}), "large"),
    "current_model": (either({}), "small"),
    "switch_model": (either({"model": "large"}, {"name": "large"}, {"model_name": "large"}), "the next message on"),
    "seerr_trending": (either({}, {"type": "all"}), "Dune (2021)"),
    "seerr_discover": (either({"type": "movie"}), "Dune (2021)"),
    "seerr_search": (either({"query": "Dune"}, {"q": "Dune"}), "Dune (2021)"),
    "seerr_details": (DUNE, "Dune (2021)"),
    "seerr_request": (lambda past, n: {**DUNE(past, n), "title": "Dune"}, "Dune (2021), movie [tmdb:7] is available"),
    "seerr_requests": (either({}, {"status": "pending"}), "No such requests."),
    "seerr_report_issue": (
        lambda past, n: {**DUNE(past, n), "title": "Dune", "issue_type": "video", "description": f"Dark {n}."},
        "Reported as issue",
    ),
}
"""By the first name of each meaning: how it is called, and what the answer, or the house, must then have in it."""


def test_every_meaning_has_its_case() -> None:
    assert {meaning.names.split()[0] for meaning in MEANINGS} == set(CASES)


def of(tool_name: str) -> list[Meaning]:
    return [meaning for meaning in MEANINGS if meaning.tool == tool_name]


OTHER_TOOLS = sorted({meaning.tool for meaning in MEANINGS} - {"home", "web_fetch"})


# Each page is read in a process of its own, and there are many names for that.
@pytest.mark.parametrize(
    "tool_name",
    [*OTHER_TOOLS, pytest.param("web_fetch", marks=[pytest.mark.thorough, pytest.mark.timeout(1_200)])],
)
async def test_each_invented_name_does_what_it_says(tmp_path: Path, tool_name: str) -> None:
    async with staged(tmp_path) as scene:
        for meaning in of(tool_name):
            names = meaning.names.split()
            examples, expected = CASES[names[0]]
            past = await scene.past(len(names))
            # Two by two: three of the same in a row would be held to be a repetition.
            for start in range(0, len(names), 2):
                pair = [(name, examples(past, number)) for number, name in enumerate(names)][start : start + 2]
                for name, told in zip(pair, await scene.told(*pair), strict=True):
                    assert expected in told, name


async def test_invented_names_read_a_page(tmp_path: Path) -> None:
    async with staged(tmp_path) as scene:
        for told in await scene.told(("open_url", {"link": scene.page_url}), ("browse_page", {"uri": scene.page_url})):
            assert "A page about lamps." in told


async def test_each_invented_name_for_the_house_does_what_it_says(tmp_path: Path) -> None:
    async with staged(tmp_path) as scene:
        past = await scene.past(1)
        for meaning in of("home"):
            examples, expected = CASES[meaning.names.split()[0]]
            for number, name in enumerate(meaning.names.split()):
                scene.home.called.clear()
                [told] = await scene.told((name, examples(past, number)))
                done = [f"{service} {data}" for service, _, data in scene.home.called]
                assert expected in told or any(one.startswith(expected) for one in done), (name, told, done)


@tool
async def home_of_old(context: ToolContext, action: str, entity: str, state: str | None = None) -> str:
    """The home as an agent's own author may have it.

    Args:
        action: What to do.
        entity: To what.
        state: How it is to be.
    """
    return f"{action} {entity} {state}"


async def test_what_a_name_says_is_told_to_the_tool_that_is_there_in_its_own_words(tmp_path: Path) -> None:
    old = Agent("old", skills=(Skill("home", "The home.", tools=(replace(home_of_old, name="home"),)),))
    async with staged(tmp_path, lambda _: old) as scene:
        calls = [("turn_on", {"entity": "lamp"}), ("close_cover", {"entity": "blind"})]
        assert await scene.told(*calls, agent="old") == ["set lamp on", "set blind closed"]


async def test_home_assistants_own_tools_are_found_by_their_plain_names_with_their_own_arguments(
    tmp_path: Path,
) -> None:
    def native(home: HomeAssistantServer) -> Agent:
        skills = (HomeAssistant(home.url, TOKEN), HomeAssistantIntents(home.url, TOKEN))
        return Agent("native", skills=skills)

    async with staged(tmp_path, native) as scene:
        plain: list[Written] = [
            ("HassTurnOn", {"name": "Bed Light"}),
            ("HassLightSet", {"name": "Bed Light", "brightness": 40}),
            ("GetLiveContext", {}),
        ]
        told = await scene.told(*plain, agent="native")
        assert "Live Context" in told[2]
        assert [(service, data) for service, _, data in scene.home.called] == plain[:2]


async def test_without_a_tool_home_invented_names_find_home_assistants_own(tmp_path: Path) -> None:
    def native(home: HomeAssistantServer) -> Agent:
        return Agent("native", skills=(HomeAssistantIntents(home.url, TOKEN),))

    async with staged(tmp_path, native) as scene:
        await scene.told(("turn_off", {"device": "Bed Light"}), ("set_light", {"name": "AC"}), agent="native")
        assert [service for service, _, _ in scene.home.called] == ["HassTurnOff", "HassLightSet"]
