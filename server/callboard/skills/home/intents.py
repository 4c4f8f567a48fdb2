"""Home Assistant's own tools (`HassTurnOn`, `HassLightSet`, `GetLiveContext` …), by the MCP server that it has."""

import structlog

from callboard.errors import AgentError
from callboard.skills.deferred import deferred
from callboard.skills.home.address import whereabouts
from callboard.skills.mcp import mcp_server
from callboard.skills.mcp.declaration import Confirm
from callboard.skills.skill import Skill
from callboard.tools import Services

_log = structlog.get_logger(__name__)


def home_intents(confirm: Confirm = "never") -> Skill:
    """What Home Assistant offers to assistants, as its owner exposes it to them: `home_HassTurnOn` and so on.

    Needs the integration Model Context Protocol Server there, of a version that has `/api/mcp`
    (streamable HTTP); without it the skill has no tools. The limit of devices a turn is not upon
    these. `confirm` as in `mcp_server`.
    """

    def build(services: Services) -> list[Skill]:
        if (there := whereabouts(services.settings)) is None:
            return []
        address, token = there
        headers = {"Authorization": f"Bearer {token}"}
        try:
            return [mcp_server("home", url=f"{address}/api/mcp", headers=headers, confirm=confirm)]
        except AgentError as error:
            _log.warning("home_intents_left_out", reason=str(error))
            return []

    return deferred("home_intents", "Home Assistant's own tools for assistants, by its MCP server.", build)
