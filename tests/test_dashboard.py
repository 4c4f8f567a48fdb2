"""The dashboard in `deploy/grafana` fits a real scrape."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callboard import Agent, Skill, tool
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text, usage
from tests.scraping import scrape
from tests.serving import request, serving

FILE = Path(__file__).parent.parent / "deploy" / "grafana" / "callboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())

ADDED = {"job", "instance"}
"""Labels that Prometheus adds."""

_SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)(?:=|!=|=~|!~)\"")


def queries() -> Iterator[str]:
    return (target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ()))


async def test_every_query_asks_for_metrics_and_labels_that_a_server_has(tmp_path: Path) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    clerk = Agent("clerk", skills=[Skill("arithmetic", "Adds.", tools=[add])])
    script = [
        chunks(call("add", '{"a": 1, "b": 2}'), finish("tool_calls"), usage(10, 5)),
        chunks(text("It is 3."), finish("stop"), usage(20, 3)),
        chunks(text("Once "), ending="hang"),
    ]
    async with (
        OpenAIServer(script) as model,
        serving(tmp_path, clerk, model_base_url=model.base_url, model="m") as service,
    ):
        await service.events(request(agent="clerk", chat_id="c"))
        async with service.client.stream("POST", "/v1/runs", json=request(agent="clerk")):
            await model.hanging.wait()
            scraped = await scrape(service.client)
    selectors = [found for query in queries() for found in _SELECTOR.findall(query)]
    assert len(selectors) >= len(list(queries()))
    for name, matchers in selectors:
        assert name in scraped.names
        assert set(_LABEL.findall(matchers)) <= scraped.labels_of(name) | ADDED
