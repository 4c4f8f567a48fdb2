"""Agents whose turns are large: each asks for a number of MiB."""

import base64
import os
from collections.abc import AsyncIterator

from callboard import RunContext, register
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart

FILES = 3
PIECE = "A piece of text" + " of a long answer" * 63 + "\n"


class Filing:
    """Returns files of as many MiB as the question says."""

    agent_id = "filing"
    name = "Filing"
    description = "Returns files."

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        """Yield the events of a turn."""
        for number in range(FILES):
            yield ToolCallStart(tool_call_id=f"file {number}", tool_name="write_file")
            url = "data:application/pdf;base64," + base64.b64encode(os.urandom(_read_size(context))).decode()
            files = ({"name": "report.pdf", "url": url},)
            yield ToolCallComplete(tool_call_id=f"file {number}", result="Written.", files=files)
        yield Message(content="Done.")


class Writing:
    """Writes as many MiB as the question says."""

    agent_id = "writing"
    name = "Writing"
    description = "Writes."

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        """Yield the events of a turn."""
        for _ in range(_read_size(context) // len(PIECE)):
            yield Message(content=PIECE)


def _read_size(context: RunContext) -> int:
    return int(str(context.messages[-1]["content"])) * 2**20


register(Filing())
register(Writing())
