"""Every query of the dashboard in `deploy/grafana` uses metrics of a real scrape."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from callboard import Agent, Skill, tool
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text, usage
from tests.scraping import Scrape, scrape
from tests.serving import request, serving

FILE = Path(__file__).parent.parent / "deploy" / "grafana" / "callboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())

ADDED = {"job", "instance"}
"""Labels that Prometheus adds."""

_WORDS = {"by", "rate", "sum", "histogram_quantile", "label_values", "or", "vector"}
_SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}")
_MATCHER = re.compile(r"(\w+)(?:=|!=|=~|!~)\"[^\"]*\"")
_BY = re.compile(r"\bby \(([^)]*)\)")


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def targets() -> list[Any]:
    return [
        pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']}: {target['refId']}")
        for panel in panels()
        for target in panel["targets"]
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scraped(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
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
    folder = tmp_path_factory.mktemp("scraped")
    async with (
        OpenAIServer(script) as model,
        serving(folder, clerk, model_base_url=model.base_url, model="m") as service,
    ):
        await service.events(request(agent="clerk", chat_id="c"))
        async with service.client.stream("POST", "/v1/runs", json=request(agent="clerk")):
            await model.hanging.wait()
            return await scrape(service.client)


@pytest.mark.parametrize(("query", "legend"), targets())
async def test_a_query_asks_for_what_there_is(query: str, legend: str, scraped: Scrape) -> None:
    selectors = _SELECTOR.findall(query)
    assert selectors
    labels = set(ADDED)
    for name, matchers in selectors:
        assert name in scraped.names
        its_labels = scraped.labels_of(name) | ADDED
        asked = _MATCHER.findall(matchers)
        assert len(asked) == matchers.count('"') / 2
        assert set(asked) <= its_labels
        labels |= its_labels
    kept = {label.strip() for group in _BY.findall(query) for label in group.split(",")}
    assert kept <= labels
    # Nothing stands outside of the selectors but words of the language.
    rest = _BY.sub("", _SELECTOR.sub("", query))
    assert set(re.findall(r"\b[a-z_]{3,}\b", re.sub(r"\[[^]]*\]", "", rest))) <= _WORDS
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    assert shown <= (kept or labels)
