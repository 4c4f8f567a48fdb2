"""The doctor's check of the Redis through which servers notify each other."""

from pathlib import Path

import pytest

from tests.processes import run
from tests.storage.redis_servers import PASSWORD, throw_away_redis

DATABASE = "postgresql+asyncpg://127.0.0.1:1/callboard"


def look(folder: Path, url: str, **settings: str) -> list[str]:
    """The lines about Redis."""
    ended = run(folder, "doctor", "--timeout", "5", REDIS_URL=url, **settings)
    assert (ended.stderr, PASSWORD in ended.stdout) == ("", False)
    return [line for line in ended.stdout.splitlines() if "Redis: " in line]


@pytest.mark.needs("redis")
def test_a_redis_that_answers_is_reported(tmp_path: Path) -> None:
    with throw_away_redis() as redis:
        assert look(tmp_path, redis.url, DATABASE_URL=DATABASE) == ["✓ Redis: it answers"]


def test_a_redis_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    [away] = look(tmp_path, f"unix://:{PASSWORD}@{tmp_path}/socket", DATABASE_URL=DATABASE)
    assert away.startswith(f"✗ Redis: the Redis unix://{tmp_path}/socket cannot be used: Error 2 connecting")
    [wrong] = look(tmp_path, f"redis://:{PASSWORD}/@host", DATABASE_URL=DATABASE)
    assert wrong.startswith("✗ Redis: CALLBOARD_REDIS_URL cannot be read")


def test_a_redis_beside_sqlite_has_no_effect(tmp_path: Path) -> None:
    assert look(tmp_path, "redis://nowhere.invalid:6379") == [
        "– Redis: it has no effect with SQLite, which only one server can use"
    ]
