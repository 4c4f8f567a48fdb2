"""Fixtures of the tests of scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripts.stand_in import StandIn, serving


@pytest.fixture
def webui() -> Iterator[StandIn]:
    """A stand-in for Open WebUI's API."""
    with serving() as stand_in:
        yield stand_in
