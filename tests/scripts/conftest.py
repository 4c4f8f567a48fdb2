"""Fixtures of the tests of scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.scripts.stand_in import StandIn, serving


@pytest.fixture
def webui() -> Iterator[StandIn]:
    """A stand-in for Open WebUI's API."""
    with serving() as stand_in:
        yield stand_in


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the caller's shell reaches the scripts."""
    for prefix in ("CALLBOARD_", "OPEN_WEBUI_"):
        for name in [name for name in os.environ if name.startswith(prefix)]:
            monkeypatch.delenv(name)
