"""The doctor's check of the Redis that has the log of runs."""

from pathlib import Path

import pytest

from tests.processes import run
from tests.storage.redis_servers import PASSWORD, throw_away_redis


def look(folder: Path, url: str) -> list[str]:
    """The lines about Redis."""
    ended = run(folder, "doctor", "--timeout", "5", REDIS_URL=url)
    assert (ended.stderr, PASSWORD in ended.stdout) == ("", False)
    return [line for line in ended.stdout.splitlines() if "Redis: " in line]


@pytest.mark.needs("redis")
def test_a_redis_that_may_lose_data_is_reported(tmp_path: Path) -> None:
    with throw_away_redis("--appendonly", "yes") as redis:
        [line] = look(tmp_path, redis.url)
    assert line.startswith("✓ Redis: it answers, and is version ")
    with throw_away_redis("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru") as redis:
        _, not_on_disk, dropping = look(tmp_path, redis.url)
    assert not_on_disk.startswith("– ")
    assert not_on_disk.endswith("→ set appendonly yes there")
    assert dropping.startswith("✗ ")
    assert dropping.endswith("→ set maxmemory-policy noeviction there")


def test_an_unreachable_redis_and_an_invalid_url_are_reported(tmp_path: Path) -> None:
    [away] = look(tmp_path, f"unix://:{PASSWORD}@{tmp_path}/socket")
    assert away.startswith(f"✗ Redis: the Redis unix://{tmp_path}/socket cannot be used: it cannot be reached")
    [wrong] = look(tmp_path, f"redis://:{PASSWORD}/@host")
    assert wrong.startswith("✗ Redis: CALLBOARD_REDIS_URL cannot be read")
