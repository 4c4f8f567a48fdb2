"""Answers outlive their servers: whatever befalls those, each ends as it would have, and no effect is doubled."""

import random
from pathlib import Path

import pytest

from tests.faults.campaign import run_campaign

POSTGRESQL = pytest.mark.needs("postgresql")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


FAULTS = 8
"""More than an engine has kinds of faults: each happens once, and some twice."""


@pytest.mark.parametrize(
    "engine",
    [
        "sqlite",
        pytest.param("postgresql", marks=POSTGRESQL),
        pytest.param("redis", marks=[POSTGRESQL, pytest.mark.needs("redis")]),
    ],
)
async def test_every_answer_ends_as_it_would_have_and_no_effect_is_doubled(engine: str, tmp_path: Path) -> None:
    report = await run_campaign(engine, FAULTS, random.randrange(10**6), tmp_path)
    print(report)
    assert not report.problems, str(report)
    assert any(answer.faults for answer in report.answers)
