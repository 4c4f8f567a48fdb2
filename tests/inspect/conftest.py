"""A browser for the inspector's pages; each page that a test has looked at leaves a picture in `artifacts/inspect`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser

from tests.browsers import open_browser
from tests.inspect.looking import Looking, look


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def looking(browser: Browser, tmp_path: Path) -> AsyncIterator[Looking]:
    """A page of a desktop, in light colours, that has not opened anything yet."""
    async with look(browser) as looking:
        yield looking
