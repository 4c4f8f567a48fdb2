"""A new event is only a class: it passes from an agent to its listeners as all other events do."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from callboard.agents import RunContext
from callboard_protocol import (
    CallEvent,
    Event,
    Message,
    ToolCallComplete,
    ToolCallStart,
)
from callboard_protocol.wire import MAX_LINE_BYTES, Limit, Line, Wire
from tests.runs import promises
from tests.serving import ScriptedAgent, numbered, request, serving

SECRET = "a-key-that-nobody-may-see"


class Wind(Wire):
    direction: Line = ""


class Weather(Event):
    """A new event of a run."""

    type: Literal["weather"] = "weather"
    place: Line
    clouds: Annotated[tuple[str, ...], Limit(30)] = ()
    wind: Wind = Wind()
    notes: str = ""


class ToolCallPhoto(CallEvent):
    """A new event of a call."""

    type: Literal["tool_call_photo"] = "tool_call_photo"
    url: str


PLAIN = Weather(place="Oslo", clouds=("low", "high"), wind=Wind(direction="north"))


async def script(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Before. ")
    yield PLAIN
    yield ToolCallPhoto(tool_call_id="", url="of no call")
    yield ToolCallStart(tool_call_id="", tool_name="look")
    yield ToolCallPhoto(tool_call_id="", url="https://example.org/")
    yield ToolCallComplete(tool_call_id="", result="seen")
    yield ToolCallPhoto(tool_call_id="", url="too late")
    yield Weather(place="x" * 9000, clouds=("a" * 20, "b" * 20), wind=Wind(direction="y" * 9000), notes="z" * 99_000)
    yield Weather(place=SECRET, wind=Wind(direction=SECRET), clouds=(SECRET,))
    yield Message(content="After.")


async def test_new_event_is_redacted_cut_numbered_stored_and_decoded(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model_base_url": "http://127.0.0.1:1", "model_api_key": SECRET}
    async with serving(tmp_path, ScriptedAgent(script), **settings) as service:
        async with service.client.stream("POST", "/v1/runs", json=request(run_id="r", chat_id="c")) as response:
            seen = [entry async for entry in numbered(response)]
        async with service.client.stream("GET", "/v1/runs/r/events", params={"after": 2}) as response:
            resumed = [entry async for entry in numbered(response)]
    promises.check(seen)
    assert resumed == seen[2:]
    events = [event for _, event in seen]
    assert [event.type for event in events] == [
        "run_start",
        "message",
        "weather",
        "tool_call_start",
        "tool_call_photo",
        "tool_call_complete",
        "weather",
        "weather",
        "message",
        "done",
    ]
    plain, long, secret = (event for event in events if isinstance(event, Weather))
    assert plain == PLAIN
    assert (len(long.place), long.clouds, len(long.wind.direction)) == (MAX_LINE_BYTES, ("a" * 20,), MAX_LINE_BYTES)
    # A field without a declared limit is cut to the default limit.
    assert len(long.notes) == 64 * 1024
    assert secret == Weather(place="[secret]", wind=Wind(direction="[secret]"), clouds=("[secret]",))
    [photo] = (event for event in events if isinstance(event, ToolCallPhoto))
    [start] = (event for event in events if isinstance(event, ToolCallStart))
    assert photo.tool_call_id == start.tool_call_id != ""


def test_second_class_of_one_event_type_is_refused() -> None:
    with pytest.raises(TypeError, match="'weather', which is Weather's"):

        class Climate(Event):
            type: Literal["weather"] = "weather"
