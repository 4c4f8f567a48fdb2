"""Only the owner of the database can read its files, also files that existed before with other modes."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from callboard.storage import Store

SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture(autouse=True)
def _careless_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: mode(file) for file in folder.iterdir() if not file.is_symlink()}


async def opened(url: str, folder: Path) -> dict[str, int]:
    """The file modes in the folder while a store is open and was written to."""
    store = await Store.open(url)
    try:
        return modes(folder)
    finally:
        await store.close()


async def test_a_new_database_and_its_new_folders_are_its_owners_alone(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    link = tmp_path / "share" / "callboard" / "callboard.db"
    await opened(f"sqlite+aiosqlite:///{link}", link.parent)
    assert {mode(each) for each in (link.parent, link.parent.parent)} == {0o700}
    link.unlink()
    link.symlink_to(disk / "real.db")
    found = await opened(f"sqlite+aiosqlite:///{link}", disk)
    assert found == {f"real.db{suffix}": 0o600 for suffix in SUFFIXES}
    # A folder that was there keeps its mode.
    assert mode(disk) == 0o777


async def test_a_database_of_an_earlier_version_is_closed_to_others_with_the_files_beside_it(tmp_path: Path) -> None:
    database = tmp_path / "callboard.db"
    with closing(sqlite3.connect(database)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE kept (x)")
        assert modes(tmp_path) == {f"callboard.db{suffix}": 0o644 for suffix in ("", "-wal", "-shm")}
        journal = tmp_path / "callboard.db-journal"
        journal.touch(0o666)
        (tmp_path / "somebody-elses.txt").touch(0o666)
        found = await opened(f"sqlite+aiosqlite:///{database}", tmp_path)
        assert found.pop("somebody-elses.txt") == 0o666
        assert set(found.values()) == {0o600}
        assert {f"callboard.db{suffix}" for suffix in SUFFIXES} <= set(found)
