"""The trace of a run is sent to the model in every framework, and to services that tools call."""

from pathlib import Path

import pytest

from callboard.trace_context import read, within
from callboard_protocol import ToolCallComplete
from tests.fakes.openai_server import Script, chunks, finish, text
from tests.frameworks.columns import FRAMEWORKS
from tests.frameworks.scenario import Scenario, calls
from tests.frameworks.stage import Framework, perform

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SCRIPT: Script = [calls(("traced", "{}")), chunks(text("There."), finish("stop"))]
ASKED = Scenario("of traces", SCRIPT, [], ["traced"])


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_trace_headers_are_sent_to_model(framework: Framework, tmp_path: Path) -> None:
    with within(read({"traceparent": TRACEPARENT})):
        seen, _ = await perform(framework, ASKED, tmp_path)
    assert [headers.get("traceparent") for headers in seen.headers] == [TRACEPARENT, TRACEPARENT]
    assert [event.result for event in seen.events if isinstance(event, ToolCallComplete)] == [TRACEPARENT]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
async def test_no_trace_headers_without_trace(framework: Framework, tmp_path: Path) -> None:
    seen, _ = await perform(framework, ASKED, tmp_path)
    assert len(seen.headers) == 2
    assert not [headers for headers in seen.headers if "traceparent" in headers]
