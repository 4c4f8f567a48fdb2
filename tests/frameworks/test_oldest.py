"""What is tested as the oldest releases is what the extras allow."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_oldest_releases_are_the_extras_lower_bounds() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    allowed = {requirement for requirements in extras.values() for requirement in requirements}
    pinned = (ROOT / "tests" / "frameworks" / "oldest.txt").read_text().split()
    assert pinned
    for pin in pinned:
        name, version = pin.split("==")
        assert any(_is_bound(requirement, name, version) for requirement in allowed), pin


def _is_bound(requirement: str, name: str, version: str) -> bool:
    name_there, _, bound = requirement.partition(">=")
    return re.sub(r"\[.*", "", name_there) == name and (version == bound or version.startswith(f"{bound}."))
