"""Searches, ids and cursors that nobody means well by: each page answers them, and never by failing."""

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from examples.demo import demo_agent
from tests.serving import Service, serving
from tests.serving import request as make_request
from tests.storage.postgres import throw_away_cluster

pytestmark = pytest.mark.slow

# What it is that a browser sends for each: a lone surrogate, bytes that are no UTF-8, a NUL, half an escape.
RAW = ("%ED%A0%80", "%FF", "%00", "a%00b", "%", "%zz", "%0d%0a", "..%2f..%2fv1", "%2e%2e/")
TEXTS = (
    *("'", '"', '"unbalanced', "*", "a*", "*a", "NEAR(a b)", "a NEAR/5 b", "-a", "NOT a", "a AND", "OR", "(", ")("),
    *("^a", "content:a", "%", "_", "\\", "\\%", "' OR 1=1 --", "; DROP TABLE chats", "a & !b", "<->", "a:*", "\u202e"),
    *("a" * 10_000, '"' * 10_000, "(" * 10_000, "é" * 5_000, "a b c d " * 1_000),
)
CURSORS = ("0", "-1", "9" * 30, "[]", "[1, null]", "[" * 20_000, f'[{"9" * 400}, "x"]', '[1, "\\ud800"]')
PAGES = {
    "chats": ("text", "user", "cursor"),
    "chat?id=c": ("id", "user", "cursor"),
    "calls": ("text", "tool", "status", "agent", "user", "since", "until", "cursor"),
    "run?id=r&chat=c": ("id", "chat", "user", "cursor"),
    "sent?run=r&chat=c": ("run", "chat", "user", "request"),
    "call?id=call_0_0&run=r&chat=c": ("id", "run", "chat", "user"),
    "result?id=call_0_0&run=r&chat=c": ("id", "run", "chat", "user"),
    "file?run=r&file=x": ("run", "file", "of"),
    "agent?id=demo": ("id",),
    "": ("user",),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    with throw_away_cluster() as folder:
        yield folder


@asynccontextmanager
async def asked(folder: Path, **settings: str) -> AsyncIterator[Service]:
    """A server with one chat."""
    async with serving(folder, demo_agent(0), **settings) as service:
        say = [{"role": "user", "content": "fail"}]
        await service.events(make_request(agent="demo", chat_id="c", run_id="r", message_id="m", messages=say))
        yield service


def addresses(page: str, name: str) -> Iterator[str]:
    """The addresses of a page with every strange value of that name; what stands there already is left out."""
    path, _, query = page.partition("?")
    kept = [pair for pair in query.split("&") if pair and not pair.startswith(f"{name}=")]
    values = [*RAW, *map(quote, TEXTS if name == "text" else TEXTS[-4:])]
    if name == "cursor":
        values += [base64.urlsafe_b64encode(one.encode()).decode() for one in CURSORS]
    yield from (f"/inspect/{path}?{'&'.join([*kept, f'{name}={value}'])}" for value in values)


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
async def test_no_query_makes_a_page_fail(tmp_path: Path, engine: str, request: pytest.FixtureRequest) -> None:
    settings: dict[str, str] = {}
    if engine == "postgresql":
        folder: Path = request.getfixturevalue("cluster")
        settings = {"database_url": f"postgresql+asyncpg://postgres@/postgres?host={folder}"}
    async with asked(tmp_path, **settings) as service:
        for page, names in PAGES.items():
            for name in names:
                for address in addresses(page, name):
                    answered = await service.client.get(address)
                    assert answered.status_code < 500, address[:200]
