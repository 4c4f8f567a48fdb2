import tests.isolation  # noqa: F401 - before packages that read the environment when they are imported

# isort: split
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import openwebui
from callboard._logging import use_plain_tracebacks
from callboard.skills.mcp import server as mcp_server
from callboard.storage import Store
from callboard.storage.sql import run_record
from tests.databases import put_new_database
from tests.garbage import set_aside_what_is_there

use_plain_tracebacks()

# A busy disk can take longer than a run waits for it. Tests of this limit move it.
run_record.PATIENCE_SECONDS = 60.0
# MCP servers start slowly on a busy machine, and an application that no longer waits for them has no tools.
mcp_server.FIRST_TOOLS_SECONDS = 60.0

pytest_plugins = ["tests.needs"]

# How long an example takes says more of the machine than of the code: no deadline.
settings.register_profile("quick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--open-webui",
        default=openwebui.VERSION,
        metavar="VERSION",
        help="the version of Open WebUI that the end-to-end tests drive (default: %(default)s)",
    )
    parser.addoption(
        "--python",
        metavar="PATH",
        help="the Python with which the README's commands are run (default: the one of this environment)",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("thorough" if config.getoption("thorough") else "quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the text formats last: thousands of short tests, so that all processes have work until the end."""
    items.sort(key=lambda item: "formats" in item.path.parts)


def pytest_collection_finish() -> None:
    # The commands read `.env` in the working directory, and the user may have one in the clone.
    os.chdir(Path.home())
    set_aside_what_is_there()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "callboard.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[Store]:
    await put_new_database(database)
    opened = await Store.open(f"sqlite+aiosqlite:///{database}")
    yield opened
    await opened.close()
