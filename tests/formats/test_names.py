"""Resolving written names to tools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.skills import Seerr
from callboard_formats.aliases import MEANINGS
from callboard_formats.names import Resolved, closest_name, fold, is_tool_name, resolve_name

GENERAL = ("memory", "history", "profile", "self", "search", "web_fetch", "home", "model", "time")
CATALOGUE = (*GENERAL, *(tool.name for tool in Seerr("http://seerr.local", "key").current_tools()))
KNOWN = (*CATALOGUE, "get_weather", "list_requests")
INVENTED = [(name, meaning) for meaning in MEANINGS for name in meaning.names.split()]


def meant(written: str, known: tuple[str, ...] = KNOWN) -> str | None:
    resolved = resolve_name(written, known)
    return resolved.name if resolved else None


@pytest.mark.parametrize(
    "written", ["functionsget_weather5", "functions.get_weather12", "functions_get_weather_1", "functionsget_weather"]
)
def test_an_id_without_its_marks_names_its_tool(written: str) -> None:
    assert resolve_name(written, KNOWN) == Resolved(
        "get_weather", repair=f"tool name '{written}' taken as 'get_weather'"
    )


def test_an_id_that_may_name_two_tools_names_none() -> None:
    assert meant("functionsstep12", ("step", "step1")) is None
    assert meant("get_weather5") is None


def test_an_exact_name_needs_no_repair() -> None:
    assert [resolve_name(name, KNOWN) for name in KNOWN] == [Resolved(name) for name in KNOWN]


@pytest.mark.parametrize(
    "written",
    [
        "get-weather", "get weather", "GetWeather", "GET_WEATHER",
        "default_api.get_weather", "tools.getWeather", "functions.get_weather:0", "`get_weather`",
        "**get_weather**", "get_weather()", "'get_weather'", "to=functions.get_weather", "get_weather_tool",
        "get_weather<|channel|>commentary", "functions_get_weather", "multi_tool_use.get_weather", "[get_weather]",
    ],
)  # fmt: skip
def test_another_spelling_names_the_tool_and_reports_the_repair(written: str) -> None:
    assert resolve_name(written, KNOWN) == Resolved(
        "get_weather", repair=f"tool name '{written}' taken as 'get_weather'"
    )


def test_no_invented_name_has_two_meanings_or_is_a_tool_of_the_catalogue() -> None:
    keys = [fold(name) for name, _ in INVENTED]
    assert sorted(keys) == sorted(set(keys))
    assert not set(keys) & {fold(name) for name in CATALOGUE}


@pytest.mark.parametrize(("written", "name", "defaults"), [
    ("google", "search", {"action": "web"}),
    ("fetch_url", "web_fetch", {}),
    ("save_memory", "memory", {"action": "store"}),
    ("memory.store", "memory", {"action": "store"}),
    ("retrieve_conversation_history", "history", {"action": "search"}),
    ("HassTurnOn", "home", {"action": "set", "command": "on"}),
    ("light.turn_on", "home", {"action": "set", "command": "on"}),
    ("GetLiveContext", "home", {"action": "query"}),
    ("default_api.google_search", "search", {"action": "web"}),
])  # fmt: skip
def test_an_invented_name_means_a_tool_and_an_action(written: str, name: str, defaults: dict[str, str]) -> None:
    resolved = resolve_name(written, KNOWN)
    assert resolved is not None
    assert (resolved.name, dict(resolved.defaults)) == (name, defaults)
    assert resolved.repair == f"tool name '{written}' taken as '{name}'"


def test_an_invented_name_counts_only_if_its_tool_is_known() -> None:
    for name, meaning in INVENTED:
        assert meant(name) == meaning.tool, name
        assert meant(name, ("get_weather",)) is None, name


@pytest.mark.parametrize("written", ["functions.HassTurnOn", "turn_on"])
@pytest.mark.parametrize("native", ["home_HassTurnOn", "my_house_HassTurnOn"])
def test_home_assistants_own_tool_is_found_without_the_servers_name(written: str, native: str) -> None:
    assert meant(written, (native, "home_HassTurnOff", "get_weather")) == native


def test_a_home_assistant_name_means_its_own_tool_and_none_if_two_servers_have_it() -> None:
    assert meant("HassTurnOn", ("home", "home_HassTurnOn")) == "home_HassTurnOn"
    assert meant("turn_on", ("home", "home_HassTurnOn")) == "home"
    assert meant("HassTurnOn", ("a_HassTurnOn", "b_HassTurnOn")) is None


def test_a_known_tool_is_never_taken_for_another_by_the_table() -> None:
    assert meant("google", ("google", "search")) == "google"
    assert meant("Web Search", ("web_search", "search")) == "web_search"


def test_a_spelling_that_two_tools_share_means_neither() -> None:
    assert meant("Get Time", ("get_time", "getTime")) is None
    assert meant("getTime", ("get_time", "getTime")) == "getTime"


@pytest.mark.parametrize(
    ("written", "is_tool"), [("google", True), ("functions.search", True), ("getWeather", True), ("get_wether", False)]
)
def test_a_name_with_a_typo_means_no_tool(written: str, is_tool: bool) -> None:
    assert is_tool_name(written, KNOWN) is is_tool


@pytest.mark.parametrize(
    "written",
    [
        "movies are great", "models", "modem", "profiled", "research", "memories", "historic", "homes", "a", "",
        "I will search", "weather", "web-based", "e.g", "and/or",
    ],
)  # fmt: skip
def test_an_english_word_means_no_tool_however_similar_it_is(written: str) -> None:
    assert not is_tool_name(written, KNOWN)


@pytest.mark.parametrize(("written", "closest"), [
    ("get_wether", "get_weather"),
    ("weather", "get_weather"),
    ("google", "search"),
    ("functions.get_wether", "get_weather"),
    ("xyz", None),
    ("", None),
])  # fmt: skip
def test_an_error_can_name_the_closest_tool(written: str, closest: str | None) -> None:
    assert closest_name(written, KNOWN) == closest


@given(st.text(), st.lists(st.text(max_size=20), max_size=5))
def test_any_written_name_means_a_known_tool_or_none(written: str, known: list[str]) -> None:
    resolved = resolve_name(written, known)
    assert resolved is None or resolved.name in known
    assert closest_name(written, known) in (None, *known)
    if resolved is not None:
        assert is_tool_name(written, known)
