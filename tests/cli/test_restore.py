"""`callboard restore` replaces an unused database by a copy; a server refuses a copy that was put there by hand."""

import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from callboard.storage import Store
from tests.processes import run, serving, start
from tests.storage.shared_file import another_program

ADVICE = "run `callboard restore COPY`"


def ask(url: str, chat_id: str) -> str:
    body = {"agent": "demo", "chat_id": chat_id, "messages": [{"role": "user", "content": "big"}]}
    return httpx.post(f"{url}/v1/runs", json=body, timeout=None).text


def roles(url: str, chat_id: str) -> list[str]:
    answer = httpx.get(f"{url}/v1/chats/{chat_id}/messages")
    return [message["role"] for message in answer.json()["messages"]] if answer.status_code == 200 else []


def make_copy(folder: Path) -> Path:
    """Serve from a folder for one answer, and return a copy of its database."""
    copy = folder.parent / "copy.db"
    with serving(folder) as (url, _):
        ask(url, "copied")
        assert run(folder, "backup", str(copy)).returncode == 0
        ask(url, "later")
    return copy


def restore(folder: Path, copy: Path) -> None:
    restored = run(folder, "restore", str(copy))
    assert restored.returncode == 0, restored.stderr
    assert restored.stdout.startswith(f"{folder / 'callboard.db'}: ")


def refused_start(folder: Path) -> str:
    """Return the message of a server that does not start."""
    server = start(folder, "serve")
    said = ""
    with server.stdout, server.stderr:
        for line in server.stderr:
            said += line
            if '"listening"' in line:
                server.kill()
        assert server.wait() == 1, "the server has started"
    assert "Traceback" not in said
    return said


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


@pytest.mark.slow
def test_a_copy_over_the_file_of_a_killed_server_is_not_opened_and_is_whole_after_restore(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    copy = make_copy(folder)  # its server is killed
    database = folder / "callboard.db"
    log = folder / "callboard.db-wal"
    assert log.stat().st_size > 0
    shutil.copyfile(copy, database)
    laid_over, left = database.read_bytes(), log.read_bytes()
    assert ADVICE in refused_start(folder)
    for command in (["backup", "other.db"], ["export", "--user", "ann"], ["forget", "--user", "ann"], ["doctor"]):
        said = run(folder, *command)
        assert said.returncode == 1
        assert ADVICE in said.stderr + said.stdout
    assert (database.read_bytes(), log.read_bytes()) == (laid_over, left), "SQLite has opened them"
    restore(folder, copy)
    check_restored(folder)


@pytest.mark.slow
def test_a_second_copy_over_the_file_is_distinguished_from_the_log_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    copy = make_copy(folder)
    for log in ("callboard.db-wal", "callboard.db-shm"):
        (folder / log).unlink()
    shutil.copyfile(copy, folder / "callboard.db")
    with serving(folder) as (url, _):
        ask(url, "later")
    shutil.copyfile(copy, folder / "callboard.db")
    assert ADVICE in refused_start(folder)


def lay_over(copy: Path, folder: Path) -> None:
    shutil.copyfile(copy, folder / "callboard.db")


def remove_log_and_lay_over(copy: Path, folder: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (folder / f"callboard.db{suffix}").unlink()
    lay_over(copy, folder)


def move_over(copy: Path, folder: Path) -> None:
    moved = shutil.copyfile(copy, folder / "moved.db")
    moved.rename(folder / "callboard.db")


@pytest.mark.parametrize("harm", [lay_over, remove_log_and_lay_over, move_over])
@pytest.mark.parametrize("is_used", [True, False])
@pytest.mark.slow
def test_a_copy_put_in_place_under_a_running_server_is_refused_until_it_is_restored(
    tmp_path: Path, harm: Callable[[Path, Path], None], is_used: bool
) -> None:
    folder = tmp_path / "data"
    copy = tmp_path / "copy.db"
    with serving(folder) as (url, server):
        ask(url, "copied")
        run(folder, "backup", str(copy))
        ask(url, "later")
        harm(copy, folder)
        if is_used:
            health = httpx.get(f"{url}/health")
            assert health.status_code == 503
            assert "stop the server, run `callboard restore COPY`, start it" in health.json()["reason"]
            answer = ask(url, "unkept")
            assert '"done"' in answer
            assert "may not be remembered" in answer
            assert "stop it first" in run(folder, "restore", str(copy)).stderr
        server.send_signal(signal.SIGTERM)
        server.wait()
    assert ADVICE in refused_start(folder)
    restore(folder, copy)
    check_restored(folder)


@pytest.mark.slow
def test_restore_with_a_running_server_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    copy = make_copy(folder)
    with serving(folder) as (url, _):
        said = run(folder, "restore", str(copy))
        assert (said.returncode, said.stdout) == (1, "")
        assert "stop it first" in said.stderr
        assert httpx.get(f"{url}/health").status_code == 200
        assert roles(url, "later") == ["user", "assistant", "tool", "assistant"]


@pytest.mark.slow
async def test_a_restore_beside_another_program_that_has_the_database_open_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    copy = make_copy(folder)
    async with another_program(folder / "callboard.db") as program:
        await program.execute("SELECT count(*) FROM messages")
        assert "stop it first" in run(folder, "restore", str(copy)).stderr
    restore(folder, copy)


def test_a_restored_database_has_every_row_and_is_private_and_the_copy_stays(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "data")
    copied = copy.read_bytes()
    copy.chmod(0o644)
    folder = tmp_path / "new" / "data"
    folder.parent.mkdir()
    said = run(folder.parent, "restore", str(copy), DATA_DIR=str(folder))
    assert said.returncode == 0, said.stderr
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {
        "callboard.db": 0o600,
        "callboard.db-id": 0o600,
    }
    assert copy.read_bytes() == copied
    assert dump(folder / "callboard.db") == dump(copy)
    check_restored(folder)


@pytest.mark.slow
def test_restore_of_files_copied_with_their_log_includes_the_log(tmp_path: Path) -> None:
    make_copy(tmp_path / "data")
    for suffix in ("", "-wal"):
        shutil.copyfile(tmp_path / "data" / f"callboard.db{suffix}", tmp_path / f"both.db{suffix}")
    restore_into = tmp_path / "other"
    restore_into.mkdir()
    restore(restore_into, tmp_path / "both.db")
    assert sorted(file.name for file in tmp_path.glob("both.db*")) == ["both.db", "both.db-wal"]
    with serving(restore_into) as (url, _):
        assert roles(url, "later") == ["user", "assistant", "tool", "assistant"]


def write_garbage(copy: Path) -> None:
    copy.write_bytes(b"\xff" * 20_000)


def cut_off(copy: Path) -> None:
    copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])


def overwrite_middle(copy: Path) -> None:
    content = bytearray(copy.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 16_384] = b"\x01" * 16_384
    copy.write_bytes(content)


def make_strange(copy: Path) -> None:
    copy.unlink()
    with closing(sqlite3.connect(copy)) as other:
        other.execute("CREATE TABLE notes (text)")


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
        (cut_off, "malformed|damaged"),
        (overwrite_middle, "malformed|damaged"),
        (make_strange, "no database of Callboard"),
        (make_newer, "another version of Callboard"),
        (drop_table, "no database of Callboard: it lacks the table usage"),
        (remove, "there is no copy"),
    ],
)
@pytest.mark.slow
def test_a_damaged_copy_is_not_restored(tmp_path: Path, harm: Callable[[Path], None], words: str) -> None:
    folder = tmp_path / "data"
    copy = make_copy(folder)
    harm(copy)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    said = run(folder, "restore", str(copy))
    assert (said.returncode, said.stdout) == (1, "")
    assert len(said.stderr.splitlines()) == 1
    assert any(word in said.stderr for word in words.split("|")), said.stderr
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    with serving(folder) as (url, _):
        assert roles(url, "later") == ["user", "assistant", "tool", "assistant"]


@pytest.mark.slow
def test_the_database_itself_and_a_database_in_memory_are_not_restored(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    copy = make_copy(folder)
    assert "is the database itself" in run(folder, "restore", "callboard.db").stderr
    assert "in the memory of one process" in run(folder, "restore", str(copy), DATABASE_URL="sqlite://").stderr


def test_restore_of_postgresql_names_the_right_command_without_the_password(tmp_path: Path) -> None:
    url = "postgresql+asyncpg://board:hunter2secret@db.example.org:5433/chats"
    said = run(tmp_path, "restore", "my copy.db", DATABASE_URL=url)
    assert said.returncode == 1
    database = "--dbname=postgresql://board@db.example.org:5433/chats"
    command = f"pg_restore --clean --if-exists {database} 'my copy.db' && psql {database} "
    assert command in said.stderr
    assert "hunter2secret" not in said.stderr


@pytest.mark.slow
def test_after_a_restore_that_broke_off_no_server_starts_before_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    copy = make_copy(folder)
    log = folder / "callboard.db-wal"
    log.unlink()
    # If a file cannot be removed, the restore fails after the copy is in place.
    log.mkdir()
    assert run(folder, "restore", str(copy)).returncode == 1
    log.rmdir()
    assert ADVICE in refused_start(folder)
    restore(folder, copy)
    check_restored(folder)


@pytest.mark.slow
async def test_files_of_an_earlier_version_are_opened_with_their_log(tmp_path: Path) -> None:
    """Versions without ids stored none: the log of a killed server of such a version must not be lost."""
    folder = tmp_path / "data"
    make_copy(folder)
    (folder / "callboard.db-id").unlink()
    store = await Store.open(f"sqlite:///{folder / 'callboard.db'}")
    assert await store.chats(None).messages("later")
    await store.close()
