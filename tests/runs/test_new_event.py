"""A new event is only a class: it passes from an agent to its listeners as all other events do."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from callboard.agents import RunContext
from callboard_protocol import (
    Event,
)
from callboard_protocol.wire import MAX_LINE_BYTES, Limit, Line
from tests.serving import ScriptedAgent, numbered, request, serving

SECRET = "a-key-that-nobody-may-see"


class Weather(Event):
    """A new event of a run."""

    type: Literal["weather"] = "weather"
    place: Line
    clouds: Annotated[tuple[str, ...], Limit(30)] = ()
    notes: str = ""


LONG = Weather(place="x" * 9000, clouds=("a" * 20, "b" * 20), notes="z" * 99_000)


async def script(context: RunContext) -> AsyncIterator[Event]:
    yield Weather(place="Oslo", clouds=("low", "high"))
    yield LONG
    yield Weather(place=SECRET, clouds=(SECRET,))


async def test_new_event_is_redacted_cut_numbered_stored_and_decoded(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model_base_url": "http://127.0.0.1:1", "model_api_key": SECRET}
    async with serving(tmp_path, ScriptedAgent(script), **settings) as service:
        seen = await service.events(request(run_id="r", chat_id="c"))
        async with service.client.stream("GET", "/v1/runs/r/events", params={"after": 2}) as response:
            assert [event async for _, event in numbered(response)] == seen[2:]
    _, plain, long, secret, _ = seen
    assert plain == Weather(place="Oslo", clouds=("low", "high"))
    # A field without a declared limit is cut to the default limit.
    assert long == Weather(place="x" * MAX_LINE_BYTES, clouds=("a" * 20,), notes="z" * 64 * 1024)
    assert secret == Weather(place="[secret]", clouds=("[secret]",))


def test_second_class_of_one_event_type_is_refused() -> None:
    with pytest.raises(TypeError, match="'weather', which is Weather's"):

        class Climate(Event):
            type: Literal["weather"] = "weather"
