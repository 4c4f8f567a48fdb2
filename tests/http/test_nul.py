"""A NUL in a path, a query or an id is refused with a message, with both databases; PostgreSQL cannot store it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo import demo_agent
from tests.http.target import ROUTES
from tests.serving import Service, request, serving
from tests.storage.postgres import throw_away_cluster

NUL = "a\0b"
QUERIES = ("user_id", "chat_id", "tool_name", "cursor", "status")
HI = [{"role": "user", "content": "hi"}]
RESPONSE: dict[str, Any] = {"model": "demo", "input": "hi"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    with throw_away_cluster() as folder:
        yield folder


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    settings = {}
    if request.param == "postgresql":
        settings["database_url"] = f"postgresql+asyncpg://postgres@/postgres?host={request.getfixturevalue('cluster')}"
    async with serving(tmp_path, demo_agent(0), **settings) as opened:
        yield opened


async def test_path_or_query_with_nul_is_refused_on_every_route(service: Service) -> None:
    asked = [(method, route.path) for route in ROUTES for method in sorted(route.methods or ()) if method != "HEAD"]
    addresses = [(method, path.replace(f"{{{name}}}", "%00")) for method, path in asked for name in _names(path)]
    addresses += [(method, f"{path}?{name}=a%00b") for method, path in asked for name in QUERIES]
    for method, address in addresses:
        answer = await service.client.request(method, address, json={} if method == "POST" else None)
        assert answer.status_code == 422, (method, address)
        assert "NUL character (%00), which no id has: remove it" in answer.json()["error"]["message"]


def _names(path: str) -> list[str]:
    return [part.strip("{}") for part in path.split("/") if part.startswith("{")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *[("/v1/runs", request(**{name: NUL})) for name in ("agent", "chat_id", "message_id")],
        ("/v1/runs", request(user={"id": NUL})),
        ("/v1/runs/r/input", {"request_id": NUL, "value": True}),
        ("/v1/chat/completions", {"model": "demo", "messages": HI, "user": NUL}),
        ("/v1/responses", {**RESPONSE, "user": NUL}),
        ("/v1/responses", {**RESPONSE, "previous_response_id": f"resp_{NUL}"}),
        ("/v1/responses", {**RESPONSE, "input": [{"type": "item_reference", "id": NUL}, *HI]}),
        ("/v1/responses", {**RESPONSE, "input": [{"type": "mcp_call", "id": NUL, "name": "look"}, *HI]}),
    ],
)
async def test_id_with_nul_is_refused_with_advice(service: Service, path: str, body: dict[str, Any]) -> None:
    answer = await service.client.post(path, json=body)
    assert answer.status_code == (422 if path.startswith("/v1/runs") else 400)
    assert "an id has no control characters, such as NUL: leave them out" in answer.json()["error"]["message"]


async def test_nul_in_a_text_is_replaced_before_storing(service: Service) -> None:
    said = request(agent="demo", chat_id="c", message_id="m", messages=[{"role": "user", "content": f"say {NUL}"}])
    await service.events(said)
    kept = await service.client.get("/v1/chats/c/messages")
    assert kept.json()["messages"][0]["content"] == "say a\ufffdb"
