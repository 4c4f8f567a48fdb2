"""Selects the tests that can run here, in the time that a run may take.

A test that needs more than Python and the packages of its environment is marked `needs("postgresql")`. The marker `e2e`
stands for a browser and a real Open WebUI, `slow` for a test that takes long, `thorough` for one that takes very long.
A test that drives a browser is slow.

Plain pytest leaves out slow tests and those whose needs are not met, and its header says so. `--everything`, as
`scripts/test --all` runs pytest, leaves out thorough tests only: an unmet need ends the run before its first test.
`--thorough` runs those too.

`python -m tests.needs` prints the Debian packages that are missing.
"""

import argparse
import os
import shutil
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import pytest

from tests.storage import postgres

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True)
class Need:
    """Something that tests cannot do without: Debian packages, or otherwise a download, which tests make themselves."""

    what: str
    packages: str = ""
    is_installed: Callable[[], bool] = lambda: False

    def is_met(self, may_download: bool) -> bool:
        return self.is_installed() if self.packages else may_download

    def __str__(self) -> str:
        return f"{self.what}: apt-get install {self.packages}" if self.packages else self.what


def find(*commands: str) -> Callable[[], bool]:
    """Return a look for these commands on the PATH, all of them."""
    return lambda: all(map(shutil.which, commands))


NEEDS = {
    "postgresql": Need("PostgreSQL", "postgresql", postgres.is_installed),
    "redis": Need("Redis", "redis-server", find("redis-server", "redis-cli")),
    "npm": Need("Node.js", "nodejs npm", find("node", "npm")),
    "docker-compose": Need("docker-compose", "docker-compose", find("docker-compose")),
    "nginx": Need("nginx", "nginx", find("nginx")),
    "systemd": Need("systemd", "systemd", find("systemd-analyze")),
    "browser": Need("a browser", "chromium", lambda: any(map(shutil.which, BROWSERS))),
    "downloads": Need("downloads from PyPI or npm"),
    "open-webui": Need("a real Open WebUI, a download of 3 GB"),
}
OF_AN_END_TO_END_TEST = ("browser", "open-webui")
OF_BENCHMARKS: Mapping[str, Sequence[str]] = {
    "stream": ("open-webui",),
    "history": (),
    "scale": ("postgresql", "redis"),
    "finish": ("postgresql", "redis"),
    "hostility": (),
    "memory": (),
    "start": (),
    "browser": OF_AN_END_TO_END_TEST,
}
OF_ENGINES: Mapping[str, Sequence[str]] = {
    "sqlite": (),
    "postgresql": ("postgresql",),
    "redis": ("postgresql", "redis"),
}
"""The needs of `scripts/faults`, for each store."""


class Selection:
    """Leaves out the tests that this run is not for."""

    def __init__(self, everything: bool, thorough: bool) -> None:
        self._everything = everything
        self._unmet = {name for name, need in NEEDS.items() if not need.is_met(everything)}
        marks = [] if thorough else ["thorough"] if everything else ["slow", "thorough"]
        self._left_out_marks = frozenset(marks)

    def pytest_report_header(self) -> list[str]:
        left_out = [f"tests that need {need}" for need in describe(self._unmet)]
        if "slow" in self._left_out_marks:
            left_out.append("slow tests, and those that drive a browser")
        if "thorough" in self._left_out_marks:
            left_out.append("thorough tests")
        heading = "left out (scripts/test --all leaves out only thorough tests, scripts/test --release none)"
        return [heading, *(f"  {tests}" for tests in left_out)] if left_out else []

    # After `-m` and `-k`: a need of tests that were not selected is no error.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        unmet = {name for item in items for name in needs_of(item)} & self._unmet
        if self._everything and unmet:
            raise pytest.UsageError("\n  ".join(["--everything, but these are missing:", *describe(unmet)]))
        left_out = [item for item in items if needs_of(item) & unmet or self._is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]

    def _is_left_out(self, item: pytest.Item) -> bool:
        marks = {mark.name for mark in item.iter_markers()} | ({"slow"} if "browser" in needs_of(item) else set())
        return not marks.isdisjoint(self._left_out_marks)


def describe(names: Set[str]) -> list[str]:
    """Return a line for each need: what it is and how to get it."""
    return [str(need) for name, need in NEEDS.items() if name in names]


def require(parser: argparse.ArgumentParser, names: Set[str]) -> None:
    """End a command whose needs are not met, and say how to get them."""
    if missing := {name for name in names if not NEEDS[name].is_met(may_download=True)}:
        parser.error("\n  ".join(["these are missing:", *describe(missing)]))


def needs_of(item: pytest.Item) -> Set[str]:
    """Return the names of what a test needs; raises `UsageError` for a name that `NEEDS` does not have."""
    needs = {name for mark in item.iter_markers("needs") for name in mark.args}
    if item.get_closest_marker("e2e"):
        needs.update(OF_AN_END_TO_END_TEST)
    if unknown := needs - NEEDS.keys():
        raise pytest.UsageError(f"{item.nodeid} needs {', '.join(sorted(unknown))}: tests/needs.py knows no such need")
    return needs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--everything",
        action="store_true",
        help="leave out thorough tests only: what the others need must be there, or is downloaded",
    )
    parser.addoption("--thorough", action="store_true", help="run thorough tests too, with many more examples")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"needs(*names): cannot run without these: {', '.join(NEEDS)}")
    config.pluginmanager.register(Selection(config.getoption("everything"), config.getoption("thorough")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes of a run of all tests: more than processors, because many tests wait.

    With `--everything` they start databases and servers, so these are fewer. Named files and folders run in this
    process, which starts sooner.
    """
    is_whole_run = config.args_source is not pytest.Config.ArgsSource.ARGS
    per_processor = 2 if config.getoption("everything") else 3
    return per_processor * (os.cpu_count() or 1) if is_whole_run else 0


if __name__ == "__main__":
    print(*(need.packages for need in NEEDS.values() if not need.is_met(may_download=True)))
