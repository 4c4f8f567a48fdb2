"""A run whose calls wait for their approval, at several servers one after the other."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from callboard_protocol import Event, InputRequest
from tests.serving import Service, numbered, request


async def answer(service: Service, request_id: str, value: object, **more: Any) -> None:
    given = {"request_id": request_id, "value": value, **more}
    assert (await service.client.post("/v1/runs/r/input?user_id=ann", json=given)).status_code == 202


async def begin(service: Service, when_asked: Callable[[Service, InputRequest], Awaitable[bool]]) -> list[Event]:
    """The events of a run until its end, or until `when_asked` returns True."""
    ids = {"agent": "agent", "run_id": "r", "chat_id": "c", "message_id": "m", "user": {"id": "ann"}}
    seen: list[Event] = []
    async with service.client.stream("POST", "/v1/runs", json=request(**ids, approvals_wait=True)) as response:
        async for _, event in numbered(response):
            seen.append(event)
            if isinstance(event, InputRequest) and await when_asked(service, event):
                break
    return seen


async def events_of_run(service: Service) -> list[Event]:
    async with service.client.stream("GET", "/v1/runs/r/events?user_id=ann") as response:
        return [event async for _, event in numbered(response)]


async def is_away(service: Service, question: InputRequest) -> bool:
    """No page can show the question, so its call waits."""
    await answer(service, question.request_id, None, asked=False)
    return False


async def kill(folder: Path, next_folder: Path, *_: object) -> bool:
    """Copy what a server leaves that is killed while the question is open."""
    _copy(folder, next_folder)
    return True


def _copy(folder: Path, next_folder: Path) -> None:
    next_folder.mkdir()
    with (
        closing(sqlite3.connect(folder / "callboard.db")) as left,
        closing(sqlite3.connect(next_folder / "callboard.db")) as found,
    ):
        left.backup(found)
