"""A Seerr, and a runner of the media tools that use it."""

from collections.abc import AsyncIterator

import pytest

from callboard.skills import Seerr
from callboard.storage import Store
from tests.fakes.seerr import KEY, SeerrServer
from tests.skills.calling import ToolRunner

Media = ToolRunner[Seerr]


@pytest.fixture
async def seerr() -> AsyncIterator[SeerrServer]:
    async with SeerrServer() as server:
        yield server


@pytest.fixture
def media(seerr: SeerrServer, store: Store) -> Media:
    return Media(Seerr(seerr.url, KEY), store)
