"""Home Assistant's own tools (`HassTurnOn`, `HassLightSet`, `GetLiveContext` …), through its MCP server."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self

import structlog

from callboard.calls import Services, Tool, ToolContext, ToolResult
from callboard.calls.arguments import ReadArguments, is_blank, is_empty
from callboard.calls.tool import as_result
from callboard.errors import AgentError, ToolError
from callboard.skills.home.address import HomeAddress, HomeAssistantSettings
from callboard.skills.home.change import MAX_CHANGES_PER_TURN, release_change, reserve_changes
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

MULTI_CHANGE_INTENTS = frozenset(
    {
        "HassTurnOn",
        "HassTurnOff",
        "HassToggle",
        "HassLightSet",
        "HassSetPosition",
        "HassStopMoving",
        "HassSetVolume",
        "HassFanSetSpeed",
        "HassLawnMowerDock",
        "HassLawnMowerStartMowing",
        "HassMediaNext",
        "HassMediaPause",
        "HassMediaPrevious",
        "HassMediaUnpause",
        "HassVacuumReturnToBase",
        "HassVacuumStart",
    }
)
"""The intents that change every matching entity. A call of another intent is one change."""

INTENT_ARGUMENTS = {
    "GetLiveContext": "no arguments: all entities by area, with their states. Take names from here.",
    "HassTurnOn": "name. It also opens covers and locks locks.",
    "HassTurnOff": "name. It also closes covers and unlocks locks.",
    "HassLightSet": "name, and one of brightness (0 to 100), color, temperature (kelvin).",
    "HassClimateSetTemperature": "temperature, in the house's unit, with name, or area or floor.",
    "HassSetPosition": "name, and position (0 to 100, 100 is open).",
    "HassSetVolume": "name, and volume_level (0 to 100).",
    "HassMediaSearchAndPlay": "search_query, with name or area of the player.",
    "HassListAddItem": "item, and name, that of the list.",
    "HassBroadcast": "message: it is spoken everywhere in the house.",
}
"""The arguments that intents need. Home Assistant's schemas mark almost none as required."""

_GUIDANCE = """\
{tools} are Home Assistant's own tools for the same house.
- `name` is the name of one thing, as Home Assistant has it. For everything of a kind in an area use the tool `home`: \
action set, area and kind.
- Leave out arguments that the user did not mention, and the area if the name is enough.
- A turn may make {most} changes in the house, over all tools."""


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
            has_name = bool(str(arguments.get("name") or "").strip())
            if intent in MULTI_CHANGE_INTENTS and not has_name and arguments.keys() & _AREA_ARGUMENTS:
                # The number of things that would change is not known, so the limit could be exceeded.
                raise ToolError(
                    "Not done: this tool changes one thing here, which `name` must give. To change everything of a "
                    "kind in an area, use the tool home with action set, area and kind."
                )
            reserve_changes(callboard_context, 1)
            try:
                return as_result(await tool.function(callboard_context, **arguments))
            except ToolError as error:
                if "MatchFailedError" in str(error):
                    release_change(callboard_context)
                raise

        return replace(tool, function=serve)


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


_AREA_ARGUMENTS = frozenset({"area", "floor", "domain", "device_class"})
_TARGET_ARGUMENTS = {"name", *_AREA_ARGUMENTS}
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
