"""Selects the tests that can run here, in the time that a run may take.

A test that needs more than Python and the packages of its environment is marked `needs("postgresql")`. The marker `e2e`
stands for a browser and a real Open WebUI, `slow` for a test that takes long, `thorough` for one that takes very long.
A test that drives a browser is slow.

Plain pytest leaves out slow tests and those whose needs are not met, and its header says so. `--everything`, as
`scripts/test` runs pytest, leaves out thorough tests only: an unmet need ends the run before its first test.
`--thorough` runs those too.
"""

import os
import shutil
from collections.abc import Callable, Set
from dataclasses import dataclass

import pytest

from tests.storage import postgres

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True)
class Need:
    """Something that tests cannot do without; `advice` says why it is not there, and how to get it.

    Without `is_there` it is what the tests download themselves, for those alone who ask for everything.
    """

    what: str
    advice: str
    is_there: Callable[[], bool] | None = None


def find(*commands: str) -> Callable[[], bool]:
    """Return a look for these commands on the PATH, all of them."""
    return lambda: all(map(shutil.which, commands))


NEEDS = {
    "postgresql": Need("PostgreSQL", "no initdb found: apt-get install postgresql", postgres.is_installed),
    "redis": Need("Redis", "no redis-server found: apt-get install redis-server", find("redis-server", "redis-cli")),
    "npm": Need("Node.js", "no node or npm found: apt-get install nodejs npm", find("node", "npm")),
    "docker-compose": Need("docker-compose", "not found: apt-get install docker-compose", find("docker-compose")),
    "nginx": Need("nginx", "not found: apt-get install nginx-light", find("nginx")),
    "systemd": Need("systemd", "no systemd-analyze found: apt-get install systemd", find("systemd-analyze")),
    "browser": Need("a browser", "none found: apt-get install chromium", lambda: any(map(shutil.which, BROWSERS))),
    "downloads": Need("packages of PyPI or npm", "downloaded by pytest --everything"),
    "open-webui": Need("a real Open WebUI", "3 GB, downloaded once by pytest --everything -m e2e"),
}
OF_AN_END_TO_END_TEST = ("browser", "open-webui")


class Selection:
    """Leaves out the tests that this run is not for."""

    def __init__(self, everything: bool, thorough: bool) -> None:
        self._everything = everything
        marks = [] if thorough else ["thorough"] if everything else ["slow", "thorough"]
        self._left_out_marks = frozenset(marks)

    def pytest_report_header(self) -> list[str]:
        reasons = [f"{need.what}: {need.advice}" for name, need in NEEDS.items() if not self._is_met(name)]
        if "slow" in self._left_out_marks:
            reasons.append("time: slow tests, and those that drive a browser, are run by scripts/test")
        if "thorough" in self._left_out_marks:
            reasons.append("more time: thorough tests are run by scripts/test --thorough")
        return ["left out for want of", *(f"  {reason}" for reason in reasons)] if reasons else []

    # After `-m` and `-k`: a need of tests that were not selected is no error.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        unmet = {name for item in items for name in needs_of(item) if not self._is_met(name)}
        if self._everything and unmet:
            reasons = [f"{NEEDS[name].what}: {NEEDS[name].advice}" for name in sorted(unmet)]
            raise pytest.UsageError("\n  ".join(["--everything, but these are missing:", *reasons]))
        left_out = [item for item in items if needs_of(item) & unmet or self._is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]

    def _is_left_out(self, item: pytest.Item) -> bool:
        marks = {mark.name for mark in item.iter_markers()} | ({"slow"} if "browser" in needs_of(item) else set())
        return not marks.isdisjoint(self._left_out_marks)

    def _is_met(self, name: str) -> bool:
        is_there = NEEDS[name].is_there
        return is_there() if is_there else self._everything


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

    `scripts/test` runs the browser beside them, so these are fewer. Named files and folders run in this process, which
    starts sooner.
    """
    is_whole_run = config.args_source is not pytest.Config.ArgsSource.ARGS
    per_processor = 2 if config.getoption("everything") else 3
    return per_processor * (os.cpu_count() or 1) if is_whole_run else 0
