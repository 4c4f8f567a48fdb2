"""The demo agent: every kind of tool call, on any prompt, without any model."""

import pytest

from callboard_protocol import Done, ToolCallStart
from examples.demo import demo_agent
from tests.agents.conftest import ContextFor, play

KNOWLEDGE = """### Task:
Respond to the user query using the provided context, incorporating inline citations in the format [id].

### Guidelines:
- If this should fail, think: is the page slow?

<context>
<source id="1" name="rose.txt">The Rose, a picture.</source>
</context>

"""
"""What Open WebUI puts before a question with knowledge, shortened."""


@pytest.mark.parametrize(
    ("prompt", "tools"),
    [
        (f"{KNOWLEDGE}cite it", ["search_archive"]),
        (
            "Show me everything",
            [
                "get_weather",
                "get_weather",
                "generate_image",
                "get_weather",
                "draw_picture",
                "show_clock",
                "search_archive",
                "book_table",
                "delete_draft",
            ],
        ),
        ("slowly failing", ["get_weather", "get_weather", "generate_image", "book_table"]),
    ],
)
async def test_words_in_the_prompt_pick_single_scenes(context_for: ContextFor, prompt: str, tools: list[str]) -> None:
    events = await play(demo_agent(pace=0), context_for(prompt))
    assert [event.tool_name for event in events if isinstance(event, ToolCallStart)] == tools
    assert events[-1] == Done(finish_reason="stop")
