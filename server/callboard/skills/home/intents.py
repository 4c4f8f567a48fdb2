"""Home Assistant's own tools (`HassTurnOn`, `HassLightSet`, `GetLiveContext` …), through its MCP server."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self

import structlog

from callboard.calls import Services, Tool, ToolContext, ToolResult
from callboard.calls.arguments import ReadArguments, is_blank, is_empty
from callboard.calls.tool import as_result
from callboard.errors import AgentError, ToolError
from callboard.extras import how_to_install, is_installed
from callboard.skills.home.address import HomeAddress, HomeAssistantSettings
from callboard.skills.home.change import MAX_CHANGES_PER_TURN, correct_changes, reserve_changes
from callboard.skills.home.snapshot import Entity, HomeSnapshot
from callboard.skills.home.vocabulary import COMMANDS
from callboard.skills.mcp.declaration import Confirm
from callboard.skills.mcp.skills import McpServer
from callboard.skills.skill import Skill, SkillState

SERVER = "home"

_log = structlog.get_logger(__name__)

READ_ONLY_INTENTS = frozenset(
    {
        "GetDateTime",
        "GetLiveContext",
        "HassClimateGetTemperature",
        "HassGetCurrentDate",
        "HassGetCurrentTime",
        "HassGetState",
        "HassGetWeather",
        "HassNevermind",
        "HassRespond",
        "HassTimerStatus",
        "calendar_get_events",
        "todo_get_items",
    }
)
"""The intents that change nothing. Home Assistant does not mark them. Every other intent counts as a change."""

INTENT_DOMAINS = {
    "HassLightSet": ("light",),
    "HassSetPosition": ("cover", "valve"),
    "HassStopMoving": ("cover", "valve"),
    "HassSetVolume": ("media_player",),
    "HassFanSetSpeed": ("fan",),
    "HassLawnMowerDock": ("lawn_mower",),
    "HassLawnMowerStartMowing": ("lawn_mower",),
    "HassMediaNext": ("media_player",),
    "HassMediaPause": ("media_player",),
    "HassMediaPrevious": ("media_player",),
    "HassMediaUnpause": ("media_player",),
    "HassVacuumReturnToBase": ("vacuum",),
    "HassVacuumStart": ("vacuum",),
}
"""The domains that an intent concerns, whatever its arguments say."""

MULTI_CHANGE_INTENTS = frozenset({"HassTurnOn", "HassTurnOff", "HassToggle", *INTENT_DOMAINS})
"""The intents that change every matching entity. A call of another intent is one change."""

INTENT_ARGUMENTS = {
    "GetLiveContext": "no arguments: all entities by area, with their states. Take names from here.",
    "HassTurnOn": "name, or area or floor with domain. It also opens covers and locks locks.",
    "HassTurnOff": "name, or area or floor with domain. It also closes covers and unlocks locks.",
    "HassLightSet": "name, or area or floor, and one of brightness (0 to 100), color, temperature (kelvin).",
    "HassClimateSetTemperature": "temperature, in the house's unit, with name, or area or floor.",
    "HassSetPosition": "position (0 to 100, 100 is open) with name, or area with domain.",
    "HassSetVolume": "volume_level (0 to 100) with name, or area.",
    "HassMediaSearchAndPlay": "search_query, with name or area of the player.",
    "HassListAddItem": "item, and name, that of the list.",
    "HassBroadcast": "message: it is spoken everywhere in the house.",
}
"""The arguments that intents need, in the words of Home Assistant's schemas, which mark almost none as required."""

_GUIDANCE = """\
{tools} are Home Assistant's own tools for the same house.
- `name` is the name of one thing. Without it, `area` (a room) or `floor` means everything in it: give `domain` (such \
as ["light"]) with them, otherwise more things are switched than the user wants. Use Home Assistant's own names of \
areas and floors: read them first.
- Leave out arguments that the user did not mention, and the area if the name is enough.
- A turn may make {most} changes in the house, over all tools; a call for an area counts each thing in it."""


class HomeAssistantIntents(Skill):
    """The tools that Home Assistant offers to assistants, as its owner exposes them: `home_HassTurnOn` and so on.

    Needs the extra `mcp`, and in Home Assistant the integration Model Context Protocol Server in a version with
    `/api/mcp` (streamable HTTP). Without that integration the skill has no tools. Its changes count together with those
    of `HomeAssistant`. `confirm` as in `McpServer`.
    """

    def __init__(self, url: str, token: str, confirm: Confirm = "never") -> None:
        self._address = HomeAddress.read(url, token)
        self._confirm = confirm
        super().__init__(
            "home_intents",
            "Home Assistant's own tools for assistants, by its MCP server.",
            lifespan=self._run,
            secrets=self._address.secrets,
        )

    @classmethod
    def from_settings(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Return the skill for the Home Assistant of the environment. Raises `NotSetUp`, `SettingsError`."""
        return cls(*HomeAssistantSettings.load(variables).address())

    @asynccontextmanager
    async def _run(self, services: Services) -> AsyncIterator[SkillState]:
        url = f"{self._address.url}/api/mcp"
        headers = {"Authorization": f"Bearer {self._address.token}"}
        try:
            server = McpServer(SERVER, url=url, headers=headers, confirm=self._confirm)
        except AgentError as error:
            _log.warning("home_intents_left_out", reason=str(error))
            yield SkillState()
            return
        async with server.open(services) as opened:
            yield SkillState(
                tools=lambda: tuple(self._limit(tool) for tool in opened.current_tools()),
                prompt_fragment=lambda: write_guidance(opened.current_tools()),
                conditions=opened.current_conditions,
            )

    def _limit(self, tool: Tool) -> Tool:
        """Return the tool with the turn's limit of changes, unless it changes nothing."""
        intent = intent_of(tool.name)
        tool = replace(tool, read_arguments=_drop_empty_arguments(tool.read_arguments or dict, tool.parameters))
        if tool.read_only or intent in READ_ONLY_INTENTS:
            return replace(tool, read_only=True, changes=lambda _: False)

        async def serve(callboard_context: ToolContext, **arguments: Any) -> ToolResult:
            taken = await self._count_changes(intent, arguments)
            reserve_changes(callboard_context, taken)
            try:
                result = as_result(await tool.function(callboard_context, **arguments))
            except ToolError as error:
                if "MatchFailedError" in str(error):
                    correct_changes(callboard_context, taken, 0)
                raise
            correct_changes(callboard_context, taken, _count_successes(result.text, taken))
            return result

        return replace(tool, function=serve)

    async def _count_changes(self, intent: str, arguments: Mapping[str, Any]) -> int:
        """Return the number of changes that a call would make, at least 1. Raises `ToolError` if it cannot be known."""
        if (
            intent not in MULTI_CHANGE_INTENTS
            or _read_texts(arguments.get("name"))
            or not any(arguments.get(key) for key in _AREA_ARGUMENTS)
        ):
            return 1
        if not is_installed("home"):
            advice = f"name a single thing. {how_to_install('home')}."
            raise ToolError(f"The number of changes in this call cannot be counted here: {advice}")
        # Imported here because it belongs to an extra.
        from callboard.skills.home.connection import connect

        async with connect(self._address) as assistant:
            home = await assistant.snapshot()
        return max(1, len(_find_targets(home, intent, arguments)))


def intent_of(tool_name: str) -> str:
    """Return Home Assistant's own name of a tool."""
    return tool_name.removeprefix(f"{SERVER}_")


def write_guidance(tools: Sequence[Tool]) -> str:
    """Return instructions for the model about the available intents, empty if there are none."""
    if not tools:
        return ""
    lines = [
        f"- {tool.name}: {INTENT_ARGUMENTS[intent]}"
        for tool in tools
        if (intent := intent_of(tool.name)) in INTENT_ARGUMENTS
    ]
    text = _GUIDANCE.format(tools=f"The tools {SERVER}_Hass… and {SERVER}_Get…", most=MAX_CHANGES_PER_TURN)
    return "\n".join([text, *(["The arguments that each needs:", *lines] if lines else [])])


_AREA_ARGUMENTS = ("area", "floor", "domain", "device_class")


_TARGET_ARGUMENTS = frozenset({"name", *_AREA_ARGUMENTS})
"""The arguments that select entities, as opposed to the arguments that set values."""


def _drop_empty_arguments(read: ReadArguments, schema: Mapping[str, Any]) -> ReadArguments:
    """Return a reader that drops empty optional arguments, because some models fill in all arguments.

    A single 0 is kept as a value, as in HassSetPosition. Of several zeros only the first is kept, because Home
    Assistant uses only the first value.
    """
    required = frozenset(schema.get("required") or ())

    def read_given(arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in arguments.items() if name in required or not is_blank(value)}
        optional = given.keys() - required - _TARGET_ARGUMENTS
        values = [name for name in given if name in optional and not is_empty(given[name])]
        zeros = [name for name in given if name in optional and is_empty(given[name])]
        dropped = zeros if values else zeros[1:]
        return read({name: value for name, value in given.items() if name not in dropped})

    return read_given


def _find_targets(home: HomeSnapshot, intent: str, arguments: Mapping[str, Any]) -> list[Entity]:
    areas = _read_texts(arguments.get("area"))
    floors = _read_texts(arguments.get("floor"))
    domains = _read_texts(arguments.get("domain")) or INTENT_DOMAINS.get(intent) or tuple(COMMANDS)
    classes = _read_texts(arguments.get("device_class"))
    return [
        entity
        for entity in home.entities
        if entity.is_exposed
        and entity.is_named
        and entity.domain in domains
        and (not classes or entity.device_class in classes)
        and (not areas or _is_named(areas, (entity.area.area_id, *entity.area.names) if entity.area else ()))
        and (not floors or _is_named(floors, entity.area.floor if entity.area else ()))
    ]


def _is_named(wanted: Sequence[str], names: Sequence[str]) -> bool:
    # Home Assistant compares names without case and white space.
    return bool({_normalize(name) for name in wanted} & {_normalize(name) for name in names})


def _normalize(name: str) -> str:
    return "".join(name.casefold().split())


def _read_texts(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(text for text in values if isinstance(text, str) and text.strip())


def _count_successes(answer: str, taken: int) -> int:
    """Return the number of changes that the answer reports, or `taken` if it does not report any."""
    try:
        changed = json.loads(answer)["data"]["success"]
        return sum(change["type"] == "entity" for change in changed) or taken
    except (ValueError, KeyError, TypeError, RecursionError):
        return taken
