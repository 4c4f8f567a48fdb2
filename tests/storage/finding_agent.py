"""An agent for tests that kill servers: it searches for a source until its own limit of calls is reached."""

import json
import os
from pathlib import Path

from callboard import Agent, Limits, Skill, ToolResult, register, tool
from callboard_protocol import Source

RAN = Path(os.environ["CALLBOARD_TEST_RAN"])
ADDRESS = "https://example.org/seats"


@tool
def find(words: str) -> ToolResult:
    """Find a page.

    Args:
        words: To look for.
    """
    with RAN.open("a") as file:
        file.write(f"find {words}\n")
    found = {"source_number": 1, "title": "Seats", "url": ADDRESS, "snippet": "There are ten."}
    about = {"source": ADDRESS, "name": "Seats", "source_number": 1}
    source = Source(source={"name": "Seats", "url": ADDRESS}, document=("There are ten.",), metadata=(about,))
    return ToolResult(json.dumps([found]), sources=(source,))


register(Agent("careful", skills=[Skill("pages", "Finds pages.", tools=[find])], limits=Limits(max_tool_calls=1)))
