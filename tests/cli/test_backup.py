"""`callboard backup` copies a database in use, and `callboard restore` replaces an unused one by a copy."""

import json
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from callboard.errors import StorageError
from callboard.storage import Store
from callboard.storage.sql import sqlite_backup
from tests.gates import Gate
from tests.processes import run, serving
from tests.storage.shared_file import another_program


def ask(url: str, chat_id: str) -> str:
    body = {"agent": "demo", "chat_id": chat_id, "messages": [{"role": "user", "content": "big"}]}
    return httpx.post(f"{url}/v1/runs", json=body, timeout=None).text


def roles(url: str, chat_id: str) -> list[str]:
    answer = httpx.get(f"{url}/v1/chats/{chat_id}/messages")
    return [message["role"] for message in answer.json()["messages"]] if answer.status_code == 200 else []


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a killed server with two answers, whose log is there, and a copy from between them."""
    made = tmp_path_factory.mktemp("killed")
    with serving(made / "data") as (url, _):
        ask(url, "copied")
        assert run(made / "data", "backup", str(made / "copy.db")).returncode == 0
        ask(url, "later")
    return made


@pytest.fixture
def folder(killed: Path, tmp_path: Path) -> Path:
    """The folder of the killed server; the copy is beside it."""
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "data"


@pytest.fixture
def copy(folder: Path) -> Path:
    return folder.parent / "copy.db"


def restore(folder: Path, copy: Path) -> None:
    restored = run(folder, "restore", str(copy))
    assert restored.returncode == 0, restored.stderr
    assert restored.stdout.startswith(f"{folder / 'callboard.db'}: ")


def integrity(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def dump(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


def check_restored(folder: Path) -> None:
    """The database has the rows of the copy and no later ones, and a server can use it."""
    assert integrity(folder / "callboard.db") == "ok"
    with serving(folder) as (url, _):
        assert roles(url, "copied") == ["user", "assistant", "tool", "assistant"]
        assert roles(url, "later") == []
        assert '"done"' in ask(url, "after")
        assert roles(url, "after") == ["user", "assistant", "tool", "assistant"]
        assert httpx.get(f"{url}/health").json()["status"] == "ok"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_restore_after_a_kill_removes_later_rows_and_the_log(folder: Path, copy: Path, is_damaged: bool) -> None:
    assert (folder / "callboard.db-wal").stat().st_size > 0
    if is_damaged:
        write_garbage(folder / "callboard.db")
    restore(folder, copy)
    check_restored(folder)


async def test_restore_of_a_database_that_a_server_or_another_program_uses_is_refused_and_changes_nothing(
    folder: Path, copy: Path
) -> None:
    with serving(folder) as (url, _):
        said = run(folder, "restore", str(copy))
        assert (said.returncode, said.stdout) == (1, "")
        assert "stop it first" in said.stderr
        assert roles(url, "later") == ["user", "assistant", "tool", "assistant"]
    async with another_program(folder / "callboard.db") as program:
        await program.execute("SELECT count(*) FROM messages")
        assert "stop it first" in run(folder, "restore", str(copy)).stderr
    restore(folder, copy)


def test_a_restored_database_has_every_row_and_is_private_and_the_copy_stays(tmp_path: Path, copy: Path) -> None:
    copied = copy.read_bytes()
    copy.chmod(0o644)
    folder = tmp_path / "new" / "data"
    folder.parent.mkdir()
    said = run(folder.parent, "restore", str(copy), DATA_DIR=str(folder))
    assert said.returncode == 0, said.stderr
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {
        "callboard.db": 0o600,
    }
    assert copy.read_bytes() == copied
    assert dump(folder / "callboard.db") == dump(copy)


async def test_restore_of_files_copied_with_their_log_includes_the_log(folder: Path, tmp_path: Path) -> None:
    for suffix in ("", "-wal"):
        shutil.copyfile(folder / f"callboard.db{suffix}", tmp_path / f"both.db{suffix}")
    restore_into = tmp_path / "other"
    restore_into.mkdir()
    restore(restore_into, tmp_path / "both.db")
    assert await has_later(restore_into)


async def has_later(folder: Path) -> bool:
    """Whether the database has the answer that came after the copy."""
    store = await Store.open(f"sqlite:///{folder / 'callboard.db'}")
    found = await store.chats(None).messages("later")
    await store.close()
    return bool(found)


def write_garbage(copy: Path) -> None:
    copy.write_bytes(b"\xff" * 20_000)


def overwrite_middle(copy: Path) -> None:
    content = bytearray(copy.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 16_384] = b"\x01" * 16_384
    copy.write_bytes(content)


def make_newer(copy: Path) -> None:
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")


def drop_table(copy: Path) -> None:
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("DROP TABLE usage")


def remove(copy: Path) -> None:
    copy.unlink()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (write_garbage, "cannot be read"),
        (overwrite_middle, "malformed|damaged"),
        (make_newer, "another version of Callboard"),
        (drop_table, "no database of Callboard: it lacks the table usage"),
        (remove, "there is no copy"),
    ],
)
def test_a_damaged_copy_is_not_restored(folder: Path, copy: Path, harm: Callable[[Path], None], words: str) -> None:
    harm(copy)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    said = run(folder, "restore", str(copy))
    assert (said.returncode, said.stdout) == (1, "")
    assert len(said.stderr.splitlines()) == 1
    assert any(word in said.stderr for word in words.split("|")), said.stderr
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


POSTGRESQL = "postgresql+asyncpg://board:hunter2secret@db.example.org:5433/chats"
SERVED = "--dbname=postgresql://board@db.example.org:5433/chats"


@pytest.mark.parametrize(
    ("command", "name", "url", "told"),
    [
        ("restore", "callboard.db", "", "is the database itself"),
        ("backup", "new.db", "sqlite://", "in the memory of one process"),
        ("backup", "none/new.db", "", "cannot be written"),
        (
            "backup",
            "my copy.db",
            POSTGRESQL,
            "pg_dump --format=custom '--file=my copy.db' postgresql://board@db.example",
        ),
        (
            "restore",
            "my copy.db",
            POSTGRESQL,
            f"pg_restore --clean --if-exists {SERVED} 'my copy.db' && psql {SERVED} ",
        ),
    ],
)
def test_what_the_commands_cannot_copy_is_refused_with_advice(
    folder: Path, command: str, name: str, url: str, told: str
) -> None:
    said = run(folder, command, name, **({"DATABASE_URL": url} if url else {}))
    assert said.returncode == 1
    assert told in said.stderr
    assert "hunter2secret" not in said.stderr


def test_a_copy_is_one_file_that_only_its_owner_can_read_and_overwrites_none(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "copies" / "new.db"
    made.parent.mkdir()
    assert run(folder, "backup", str(made)).returncode == 0
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    made.write_text("last week's")
    again = run(folder, "backup", str(made))
    assert (again.returncode, again.stdout) == (1, "")
    assert f"there is a file {made} already" in again.stderr
    assert made.read_text() == "last week's"
    assert [*made.parent.iterdir()] == [made]


def test_backup_of_a_damaged_database_is_refused(folder: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(folder / "callboard.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    overwrite_middle(folder / "callboard.db")
    made = run(folder, "backup", str(tmp_path / "other.db"))
    assert made.returncode == 1
    assert "damaged" in made.stderr or "malformed" in made.stderr
    assert "Traceback" not in made.stderr
    assert not (tmp_path / "other.db").exists()


def test_backup_without_a_database_leaves_no_file(tmp_path: Path) -> None:
    nothing = run(tmp_path, "backup", "copy.db")
    assert nothing.returncode == 1
    assert "there is no database" in nothing.stderr
    assert list(tmp_path.iterdir()) == []


HELD_DEMO = Path(__file__).parent.parent / "e2e" / "held_demo.py"


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
        assert integrity(copy) == "ok"
        with serving(tmp_path / "second", DATABASE_URL=f"sqlite:///{copy}", AGENTS=str(HELD_DEMO)) as (second, _):
            events = httpx.get(f"{second}/v1/runs/r/events", timeout=None).text
            [call] = httpx.get(f"{second}/v1/chats/c/timeline").json()["tool_calls"]
        gate.open()
        # At the first server the run goes on.
        assert any('"done"' in line for line in lines)
    assert events.count('"tool_call_start"') == 1
    assert json.loads(events.strip().splitlines()[-1].removeprefix("data: "))["code"] == "interrupted"
    assert call["error_code"] == "interrupted"


@pytest.mark.slow
def test_backup_of_a_locked_database_fails_after_a_time_limit(tmp_path: Path) -> None:
    file = tmp_path / "callboard.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("CREATE TABLE kept (x)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="another program has locked it"):
            sqlite_backup.back_up(file, tmp_path / "copy.db", patience_seconds=0.1)
    assert [found.name for found in tmp_path.iterdir()] == ["callboard.db"]
