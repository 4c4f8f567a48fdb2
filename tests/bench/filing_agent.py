"""An agent whose calls return files: each asks for a number of MiB."""

import base64
import os
from collections.abc import AsyncIterator

from callboard import RunContext, register
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart

FILES = 3


class Filing:
    """Returns files of as many MiB as the question says."""

    agent_id = "filing"
    name = "Filing"
    description = "Returns files."

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        """Yield the events of a turn."""
        size_bytes = int(str(context.messages[-1]["content"])) * 2**20
        for number in range(FILES):
            yield ToolCallStart(tool_call_id=f"file {number}", tool_name="write_file")
            url = "data:application/pdf;base64," + base64.b64encode(os.urandom(size_bytes)).decode()
            files = ({"name": "report.pdf", "url": url},)
            yield ToolCallComplete(tool_call_id=f"file {number}", result="Written.", files=files)
        yield Message(content="Done.")


register(Filing())
