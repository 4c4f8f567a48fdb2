"""The names that models invent for tools, at the tools of the skills: each call fits, with the arguments it means."""

from dataclasses import replace
from typing import Any

import pytest

from callboard.agents import Agent
from callboard.agents.resolving import resolve_calls
from callboard.calls import Tool, ToolCall, tool
from callboard.calls.call import ResolvedCall
from callboard.calls.limits import Budget, Limits
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
from callboard_formats.aliases import MEANINGS

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
ZONE = ({"timezone": "Asia/Tokyo"}, {"zone": "Asia/Tokyo"}, {"tz": "Asia/Tokyo"})
BED_SET = {"action": "set", "targets": ["Bed Light"]}
MOVIE = {"tmdb_id": 7, "media_type": "movie"}

CASES: dict[str, tuple[tuple[Arguments, ...], Arguments]] = {
    "google": (SOUGHT, {"action": "web", "query": "lamps"}),
    "save_memory": (({"text": "Tea."}, {"content": "Tea."}, {"fact": "Tea."}), {"action": "store", "text": "Tea."}),
    "update_memory": (
        ({"memory_id": 3, "text": "Tea."}, {"id": 3, "content": "Tea."}),
        {"action": "update", "memory_id": 3, "text": "Tea."},
    ),
    "set_profile": (
        ({"name": "diet", "value": "vegan"}, {"key": "diet", "value": "vegan"}),
        {"action": "set", "name": "diet", "value": "vegan"},
    ),
    "get_self": (({},), {"action": "get"}),
    "get_time": (ZONE, {"zone": "Asia/Tokyo"}),
    "turn_on": (BED, BED_SET | {"command": "on"}),
    "HassCloseCover": (
        ({"name": "Bed Light", "domain": ["cover"]},),
        BED_SET | {"command": "close", "kind": "cover"},
    ),
    "HassLightSet": (
        ({"name": "Bed Light", "brightness": 40}, {"entity_id": "Bed Light", "level_percent": "40"}),
        BED_SET | {"level_percent": 40, "kind": "light"},
    ),
    "set_light": (
        ({"name": "Bed Light", "brightness": 40, "state": "on"},),
        BED_SET | {"level_percent": 40, "command": "on", "kind": None},
    ),
    "set_device": (
        ({"device": "Bed Light", "state": "on"}, {"name": "Bed Light", "command": "on"}),
        BED_SET | {"command": "on"},
    ),
    "GetLiveContext": (({"area": "Kitchen"}, {"location": "Kitchen"}), {"action": "query", "area": "Kitchen"}),
    "switch_model": (({"model": "large"}, {"name": "large"}), {"action": "switch", "name": "large"}),
    "seerr_report_issue": (
        tuple({**one, "title": "Dune", "issue_type": "video", "description": "Dark."} for one in DUNE),
        MOVIE | {"title": "Dune", "problem": "video", "message": "Dark."},
    ),
}
"""By the first name of a meaning of each kind: ways to write the call, and the arguments that the tool must get."""


def resolved(name: str, arguments: Arguments, tools: dict[str, Tool] = TOOLS) -> tuple[str, Arguments]:
    """Return the tool that a call runs, and the arguments that it gets."""
    [call] = resolve_calls([ToolCall("c", name, arguments)], tools, Budget(Limits()), Redaction())
    assert isinstance(call, ResolvedCall), call
    return call.tool.name, dict(call.arguments)


def test_every_meaning_is_of_a_tool_that_there_is() -> None:
    assert {meaning.tool for meaning in MEANINGS} <= set(TOOLS)


@pytest.mark.parametrize("first", CASES)
def test_each_invented_name_calls_its_tool_with_the_arguments_that_it_means(first: str) -> None:
    [meaning] = [one for one in MEANINGS if one.names.split()[0] == first]
    examples, expected = CASES[first]
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
    assert resolved("set_brightness", {"entity": "lamp"}, old)[1]["action"] == "set"
