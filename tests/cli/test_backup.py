"""A copy is made under load, and a server that is started on it has every turn that had ended."""

import json
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from callboard.errors import StorageError
from callboard.storage.sql import sqlite_backup
from tests.gates import Gate
from tests.processes import run, serving

HELD_DEMO = Path(__file__).parent.parent / "e2e" / "held_demo.py"
CLIENTS = 3
ENOUGH_TURNS = 12


class Load:
    """Clients that ask one thing after another, each in a chat of its own; `ended` are those with a whole answer."""

    def __init__(self, url: str) -> None:
        self.ended: list[str] = []
        self.failed: list[str] = []
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]
        self._grown = threading.Condition()

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, turns: int) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.ended) >= turns or self.failed, 60)

    def _ask(self, number: int) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            chat_id = f"{number}-{turn}"
            body = {"agent": "demo", "chat_id": chat_id, "messages": [{"role": "user", "content": "big"}]}
            last = httpx.post(f"{self._url}/v1/runs", json=body, timeout=None).text.strip().splitlines()[-1]
            with self._grown:
                (self.ended if '"done"' in last else self.failed).append(chat_id)
                self._grown.notify_all()


def roles(url: str, chat_id: str) -> list[str]:
    answer = httpx.get(f"{url}/v1/chats/{chat_id}/messages")
    assert answer.status_code == 200, chat_id
    return [message["role"] for message in answer.json()["messages"]]


@contextmanager
def served_copy(folder: Path, copy: Path) -> Iterator[str]:
    with serving(folder, DATABASE_URL=f"sqlite:///{copy}", AGENTS=str(HELD_DEMO)) as (url, _):
        yield url


@pytest.mark.slow
def test_a_server_on_a_copy_that_was_made_under_load_has_every_turn_that_had_ended(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with serving(tmp_path / "first") as (url, _), Load(url) as load:
        load.wait_for(ENOUGH_TURNS)
        had_ended = list(load.ended)
        made = run(tmp_path / "first", "backup", str(copy))
        assert made.returncode == 0, made.stderr
        # The server has noticed nothing.
        load.wait_for(len(load.ended) + CLIENTS)
        assert load.failed == []
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
    with closing(sqlite3.connect(copy)) as looked_at:
        assert looked_at.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with served_copy(tmp_path / "second", copy) as url:
        assert len(had_ended) >= ENOUGH_TURNS
        for chat_id in had_ended:
            assert roles(url, chat_id) == ["user", "assistant", "tool", "assistant"]
        assert httpx.get(f"{url}/health").json()["status"] == "ok"


def test_a_run_that_was_under_way_ends_in_the_copy_and_runs_no_tool_again(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    (tmp_path / "first").mkdir()
    gate = Gate(tmp_path / "first")
    body = {"agent": "held", "chat_id": "c", "run_id": "r", "messages": [{"role": "user", "content": "slow"}]}
    with (
        serving(tmp_path / "first", AGENTS=str(HELD_DEMO)) as (url, _),
        httpx.stream("POST", f"{url}/v1/runs", json=body, timeout=None) as answer,
    ):
        lines = answer.iter_lines()
        assert any("tool_call_start" in line for line in lines)
        made = run(tmp_path / "first", "backup", str(copy))
        assert made.returncode == 0, made.stderr
        with served_copy(tmp_path / "second", copy) as second:
            events = httpx.get(f"{second}/v1/runs/r/events", timeout=None).text
            [call] = httpx.get(f"{second}/v1/chats/c/timeline").json()["tool_calls"]
        gate.open()
        # At the first server the run goes on.
        assert any('"done"' in line for line in lines)
    assert events.count('"tool_call_start"') == 1
    assert json.loads(events.strip().splitlines()[-1].removeprefix("data: "))["code"] == "interrupted"
    assert call["error_code"] == "interrupted"


def test_a_copy_is_one_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    with serving(tmp_path / "first"):
        run(tmp_path / "first", "backup", str(tmp_path / "copy.db"))
    [copy] = [file for file in tmp_path.iterdir() if file.is_file()]
    assert copy.name == "copy.db"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("last week's")
    with serving(tmp_path / "first"):
        made = run(tmp_path / "first", "backup", str(copy))
    assert (made.returncode, made.stdout) == (1, "")
    assert f"there is a file {copy} already" in made.stderr
    assert copy.read_text() == "last week's"
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["copy.db"]


def test_backup_of_a_damaged_database_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    with serving(folder) as (url, _):
        body = {"agent": "demo", "chat_id": "c", "messages": [{"role": "user", "content": "big"}]}
        httpx.post(f"{url}/v1/runs", json=body, timeout=None)
    damaged = folder / "callboard.db"
    with closing(sqlite3.connect(damaged)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    damaged.write_bytes(content)
    made = run(folder, "backup", str(tmp_path / "copy.db"))
    assert made.returncode == 1
    assert "damaged" in made.stderr or "malformed" in made.stderr
    assert "Traceback" not in made.stderr
    assert [file for file in tmp_path.iterdir() if file.is_file()] == []


def test_backup_without_a_database_or_without_a_place_for_the_copy_fails_with_one_line(tmp_path: Path) -> None:
    nothing = run(tmp_path, "backup", "copy.db")
    assert nothing.returncode == 1
    assert "there is no database" in nothing.stderr
    assert list(tmp_path.iterdir()) == []
    with serving(tmp_path):
        nowhere = run(tmp_path, "backup", str(tmp_path / "none" / "copy.db"))
    assert nowhere.returncode == 1
    assert "cannot be written" in nowhere.stderr
    in_memory = run(tmp_path, "backup", "copy.db", DATABASE_URL="sqlite://")
    assert "in the memory of one process" in in_memory.stderr


def test_backup_of_postgresql_names_the_right_command_without_the_password(tmp_path: Path) -> None:
    url = "postgresql+asyncpg://board:hunter2secret@db.example.org:5433/chats"
    said = run(tmp_path, "backup", "my copy.db", DATABASE_URL=url)
    assert said.returncode == 1
    command = "pg_dump --format=custom '--file=my copy.db' postgresql://board@db.example.org:5433/chats"
    assert command in said.stderr
    assert "hunter2secret" not in said.stderr


@pytest.mark.slow
def test_backup_of_a_locked_database_fails_after_a_time_limit(tmp_path: Path) -> None:
    file = tmp_path / "callboard.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("CREATE TABLE kept (x)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="another program has locked it"):
            sqlite_backup.back_up(file, tmp_path / "copy.db", patience_seconds=0.1)
    assert [found.name for found in tmp_path.iterdir()] == ["callboard.db"]
