"""The documents say what is true: settings, valves, the example, the limits on their own length."""

import re
from pathlib import Path

from pydantic_core import PydanticUndefined

from callboard.errors import CallboardError
from callboard.http import chat_routes, openai, run_routes
from callboard.settings import Settings
from tests.formats import corpus
from tests.frameworks.table import table
from tests.pipe.loader import load_pipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SERVER_README = (ROOT / "server" / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()


def block(name: str, document: str = README) -> str:
    found = re.search(rf"<!-- {name}:[^\n]*-->\n(.*?)<!-- /{name} -->", document, re.DOTALL)
    assert found, f"there is no block {name}"
    return found[1].strip()


def default_of(value: object) -> str:
    return "–" if value in (None, "", (), PydanticUndefined) else f"`{value}`"


def test_every_setting_is_in_the_servers_readme_with_its_default() -> None:
    rows = [
        f"| `{name.upper()}` | {'the data folder of the user' if name == 'data_dir' else default_of(field.default)} "
        f"| {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    assert block("settings", SERVER_README) == "\n".join(["| setting | default | what |", "| --- | --- | --- |", *rows])


def test_every_valve_is_in_the_readme_with_its_default() -> None:
    valves = load_pipe().Pipe.Valves.model_fields
    rows = [f"| `{name}` | {default_of(field.default)} | {field.description} |" for name, field in valves.items()]
    assert block("valves") == "\n".join(["| valve | default | what |", "| --- | --- | --- |", *rows])


def test_the_formats_are_in_the_architecture_with_what_they_were_tested_with() -> None:
    assert block("formats", ARCHITECTURE) == corpus.table().strip()


def test_the_frameworks_are_in_the_architecture_with_what_they_were_tested_with() -> None:
    assert block("frameworks", ARCHITECTURE) == table().strip()


def test_the_readmes_agent_is_the_example_and_is_short() -> None:
    example = (ROOT / "server" / "examples" / "painter.py").read_text()
    assert f"```python\n{example}```" in README
    assert example.count("\n") < 25


def test_two_commands_stand_in_the_first_25_lines_of_a_readme_that_stays_short() -> None:
    lines = README.splitlines()
    assert len(lines) < 150
    assert "scripts/up" in lines[:25]
    assert any(line.startswith("pip install") for line in lines[:25])


def test_every_route_is_in_the_architecture() -> None:
    for route in [*run_routes.ROUTES, *chat_routes.ROUTES, *openai.ROUTES]:
        path = route.path.replace(":path", "")
        for method in (route.methods or set()) - {"HEAD"}:
            assert f"`{method} {path}" in ARCHITECTURE, f"{method} {path}"


def test_every_package_of_the_server_is_in_the_architecture() -> None:
    for package in (ROOT / "server" / "callboard").iterdir():
        if (package / "__init__.py").exists():
            assert f"`{package.name}/`" in ARCHITECTURE


def test_every_code_that_the_architecture_names_exists() -> None:
    table = ARCHITECTURE.split("## Every way a run can end")[1].split("## Who is asked first")[0]
    codes = {cls.code for cls in _tree(CallboardError)} | {"cancelled", "interrupted"}
    named = {word for word in re.findall(r"\(`(\w+)`\)|`(\w+)`[,)]", table) for word in word if word}
    assert named <= codes
    assert {"storage", "timeout", "interrupted"} <= named


def _tree(cls: type[CallboardError]) -> list[type[CallboardError]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in _tree(sub))]


def test_the_screenshot_of_the_readme_is_there() -> None:
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).read_bytes().startswith(b"\x89PNG")
