"""The demo agent: every kind of tool call, on any prompt, without any model."""

import pytest

from callboard._formats import round_messages
from callboard.calls import ToolCall
from callboard_protocol import Done, Event, ToolCallComplete, ToolCallError, ToolCallStart, ToolStatus
from examples.demo import demo_agent
from tests.agents.conftest import ContextFor, play, text_of


def kinds(events: list[Event]) -> list[str]:
    """The types of events, each run of equal ones once."""
    shown = [event.type for event in events if event.type != "tool_call_args_delta"]
    return [kind for position, kind in enumerate(shown) if kind not in shown[max(0, position - 1) : position]]


async def test_any_prompt_shows_the_whole_range(context_for: ContextFor) -> None:
    events = await play(demo_agent(pace=0.02), context_for("Good evening!"))
    assert kinds(events) == [
        "message", "tool_call_start", "tool_call_complete",
        "message", "tool_call_start", "tool:status", "tool_call_complete",
        "message", "tool_call_start", "tool_call_error",
        "message", "usage", "done",
    ]  # fmt: skip
    assert [event.type for event in events if isinstance(event, ToolCallStart | ToolCallComplete | ToolCallError)] == [
        "tool_call_start", "tool_call_start", "tool_call_complete", "tool_call_complete",
        "tool_call_start", "tool_call_complete",
        "tool_call_start", "tool_call_error",
    ]  # fmt: skip
    progress = [event.data.progress for event in events if isinstance(event, ToolStatus)]
    assert progress == [0, 20, 40, 60, 80, 100]
    assert "Words to try" in text_of(events)
    assert events[-1] == Done(finish_reason="stop")


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
        ("please fail", ["book_table"]),
        ("Slow!", ["generate_image"]),
        ("something BIG", ["read_archive"]),
        ("think", ["get_weather"]),
        ("Ask me before you delete", ["delete_draft"]),
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


async def test_it_remembers_the_calls_of_earlier_turns(context_for: ContextFor) -> None:
    calls = [ToolCall("a", "get_weather", "{}"), ToolCall("b", "book_table", "{}")]
    results = ['{"city": "Oslo"}', "Error: fully booked"]
    earlier = [{"role": "user", "content": "hi"}, *round_messages("", calls, results)]
    messages = [
        *earlier,
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "What do you remember?"},
    ]
    said = text_of(await play(demo_agent(pace=0), context_for(messages)))
    assert "2 tool calls" in said
    assert '- `get_weather`: `{"city": "Oslo"}`' in said
    assert "- `book_table`: `Error: fully booked`" in said
    assert "no tool call" in text_of(await play(demo_agent(pace=0), context_for("remember?")))


async def test_nothing_is_sold_without_the_users_consent(context_for: ContextFor) -> None:
    events = await play(demo_agent(pace=0), context_for("approve"))
    [denied] = [event for event in events if isinstance(event, ToolCallError)]
    assert denied.code == "not_answered"
