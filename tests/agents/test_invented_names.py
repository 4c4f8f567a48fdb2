"""The names that models invent for tools, at the tools of the skills: each call fits, with the arguments it means."""

from dataclasses import replace
from typing import Any

import pytest

from callboard.agents import Agent
from callboard.agents.tool_loop import resolve_calls
from callboard.calls import Budget, Limits, ResolvedCall, Tool, ToolCall, tool
from callboard.redaction import Redaction
from callboard.skills import (
    Clock,
    HomeAssistant,
    Memory,
    ModelChoice,
    PastChats,
    Profile,
    Searxng,
    Seerr,
    SelfNotes,
    WebSearch,
)
from callboard_formats.aliases import MEANINGS, Meaning

Arguments = dict[str, Any]

URL = "http://localhost:1"
SKILLS = (
    WebSearch([Searxng(URL)]),
    Memory(),
    Profile(),
    PastChats(),
    SelfNotes(),
    Clock(),
    ModelChoice(),
    HomeAssistant(URL, "token"),
    Seerr(URL, "key"),
)
TOOLS = {one.name: one for one in Agent("a", skills=SKILLS).tools}

BED = ({"name": "Bed Light"}, {"entity_id": "Bed Light"}, {"targets": ["Bed Light"]})
DUNE = ({"id": 7, "type": "movie"}, {"tmdbId": 7, "mediaType": "movie"}, {"media_id": "7", "kind": "movie"})
SOUGHT = ({"query": "lamps"}, {"q": "lamps"}, {"search_query": "lamps"})
NOTE = ({"text": "Be brief."}, {"content": "Be brief."}, {"note": "Be brief."})
ZONE = ({"timezone": "Asia/Tokyo"}, {"zone": "Asia/Tokyo"}, {"tz": "Asia/Tokyo"})
BED_SET = {"action": "set", "targets": ["Bed Light"]}
MOVIE = {"tmdb_id": 7, "media_type": "movie"}

CASES: dict[str, tuple[tuple[Arguments, ...], Arguments]] = {
    "google": (SOUGHT, {"action": "web", "query": "lamps"}),
    "search_news": (({"query": "lamps"}, {"topic": "lamps"}), {"action": "news", "query": "lamps"}),
    "search_reddit": (SOUGHT, {"action": "reddit", "query": "lamps"}),
    "open_url": (({"url": URL}, {"link": URL}, {"uri": URL}), {"url": URL}),
    "save_memory": (({"text": "Tea."}, {"content": "Tea."}, {"fact": "Tea."}), {"action": "store", "text": "Tea."}),
    "recall": (({"query": "tea"}, {"q": "tea"}), {"action": "search", "query": "tea"}),
    "update_memory": (
        ({"memory_id": 3, "text": "Tea."}, {"id": 3, "content": "Tea."}),
        {"action": "update", "memory_id": 3, "text": "Tea."},
    ),
    "delete_memory": (({"id": 3}, {"memory_id": 3}), {"action": "delete", "memory_id": 3}),
    "retrieve_conversation_history": (
        ({"query": "tea"}, {"keywords": "tea"}),
        {"action": "search", "query": "tea"},
    ),
    "get_history": (({"limit": 3}, {"n": 3}), {"action": "recent", "limit": 3}),
    "forget_conversation": (({"chat_id": "c"}, {"conversation_id": "c"}), {"action": "forget", "chat_id": "c"}),
    "get_profile": (({"name": "diet"}, {"key": "diet"}), {"action": "get", "name": "diet"}),
    "set_profile": (
        ({"name": "diet", "value": "vegan"}, {"key": "diet", "value": "vegan"}),
        {"action": "set", "name": "diet", "value": "vegan"},
    ),
    "profile_delete": (({"name": "diet"}, {"attribute": "diet"}), {"action": "delete", "name": "diet"}),
    "get_self": (({},), {"action": "get"}),
    "reflect": (NOTE, {"action": "reflect", "text": "Be brief."}),
    "self_develop": (NOTE, {"action": "develop", "text": "Be brief."}),
    "get_time": (ZONE, {"zone": "Asia/Tokyo"}),
    "turn_on": (BED, BED_SET | {"command": "on"}),
    "turn_off": (BED, BED_SET | {"command": "off"}),
    "HassToggle": (BED, BED_SET | {"command": "toggle"}),
    "HassOpenCover": (BED, BED_SET | {"command": "open"}),
    "HassCloseCover": (
        ({"name": "Bed Light", "domain": ["cover"]},),
        BED_SET | {"command": "close", "kind": "cover"},
    ),
    "HassLightSet": (
        ({"name": "Bed Light", "brightness": 40}, {"entity_id": "Bed Light", "level_percent": "40"}),
        BED_SET | {"level_percent": 40},
    ),
    "HassClimateSetTemperature": (
        ({"name": "Bed Light", "temperature": 21}, {"entity_id": "Bed Light", "target_temperature": 21}),
        BED_SET | {"temperature": 21},
    ),
    "HassSetPosition": (
        ({"name": "Bed Light", "position": 25}, {"device": "Bed Light", "level_percent": 25}),
        BED_SET | {"level_percent": 25},
    ),
    "set_device": (
        ({"device": "Bed Light", "state": "on"}, {"name": "Bed Light", "command": "on"}),
        BED_SET | {"command": "on"},
    ),
    "HassGetState": (BED, {"action": "get", "targets": ["Bed Light"]}),
    "GetLiveContext": (({"area": "Kitchen"}, {"location": "Kitchen"}), {"action": "query", "area": "Kitchen"}),
    "list_models": (({"name": "large"}, {"filter": "large"}), {"action": "list", "name": "large"}),
    "current_model": (({},), {"action": "current"}),
    "switch_model": (({"model": "large"}, {"name": "large"}), {"action": "switch", "name": "large"}),
    "seerr_trending": (({"type": "all"},), {"media_type": "all"}),
    "seerr_discover": (({"type": "movie"},), {"media_type": "movie"}),
    "seerr_search": (({"query": "Dune"}, {"q": "Dune"}), {"query": "Dune"}),
    "seerr_details": (DUNE, MOVIE),
    "seerr_request": (tuple({**one, "title": "Dune"} for one in DUNE), MOVIE | {"title": "Dune"}),
    "seerr_requests": (({"status": "pending"},), {"state": "pending"}),
    "seerr_report_issue": (
        tuple({**one, "title": "Dune", "issue_type": "video", "description": "Dark."} for one in DUNE),
        MOVIE | {"title": "Dune", "problem": "video", "message": "Dark."},
    ),
}
"""By the first name of each meaning: ways to write the call, and the arguments that the tool must get."""


def resolved(name: str, arguments: Arguments, tools: dict[str, Tool] = TOOLS) -> tuple[str, Arguments]:
    """Return the tool that a call runs, and the arguments that it gets."""
    [call] = resolve_calls([ToolCall("c", name, arguments)], tools, Budget(Limits()), Redaction())
    assert isinstance(call, ResolvedCall), call
    return call.tool.name, dict(call.arguments)


def test_every_meaning_has_its_case() -> None:
    assert {meaning.names.split()[0] for meaning in MEANINGS} == set(CASES)


@pytest.mark.parametrize("meaning", MEANINGS, ids=lambda meaning: meaning.names.split()[0])
def test_each_invented_name_calls_its_tool_with_the_arguments_that_it_means(meaning: Meaning) -> None:
    examples, expected = CASES[meaning.names.split()[0]]
    for name in meaning.names.split():
        for arguments in examples:
            tool_name, given = resolved(name, arguments)
            assert (tool_name, {key: given.get(key) for key in expected}) == (meaning.tool, expected), name


@tool
async def home_of_old(action: str, entity: str, state: str | None = None) -> str:
    """The home as an agent's own author may have it."""
    return f"{action} {entity} {state}"


def test_what_a_name_says_is_told_to_the_tool_that_is_there_in_its_own_words() -> None:
    old: dict[str, Tool] = {"home": replace(home_of_old, name="home")}
    assert resolved("turn_on", {"entity": "lamp"}, old)[1] == {"action": "set", "entity": "lamp", "state": "on"}
    assert resolved("close_cover", {"entity": "blind"}, old)[1]["state"] == "closed"
