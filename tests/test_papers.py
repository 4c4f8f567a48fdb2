"""The papers of the project: one version, a licence, forms and workflows that their platform can read."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import callboard

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FUNCTIONS = ("callboard_pipe.py", "callboard_events.py", "callboard_filter.py")
SCHEMAS: dict[str, list[Path]] = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "feature.yml")],
    "vendor.compose-spec": [ROOT / "compose.yaml"],
}


def check_schema(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


# ------------------------------------------------------------------------------------------------------- version


def test_the_version_is_written_in_one_place_and_the_functions_have_it_too() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    written = (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text()
    assert f'\n__version__ = "{callboard.__version__}"\n' in written
    for function in FUNCTIONS:
        assert f"\nversion: {callboard.__version__}\n" in (ROOT / "pipe" / function).read_text()


def test_the_commands_of_a_release_change_the_version_everywhere(tmp_path: Path) -> None:
    functions = [f"pipe/{function}" for function in FUNCTIONS]
    for name in ("server/callboard/_version.py", *functions, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    text = (ROOT / "RELEASE.md").read_text()
    steps = [line.strip() for line in text.splitlines() if line.strip().startswith(("version=", "sed "))]
    assert len(steps) == 4
    subprocess.run(["sh", "-euc", "\n".join(steps)], cwd=tmp_path, check=True, timeout=120)
    assert '\n__version__ = "0.2.0"\n' in (tmp_path / "server/callboard/_version.py").read_text()
    for name in functions:
        assert "\nversion: 0.2.0\n" in (tmp_path / name).read_text()
    assert re.search(r"^## \[Unreleased\]\n\n## \[0\.2\.0\] - \d{4}-\d\d-\d\d$", changelog(tmp_path), re.MULTILINE)


def changelog(folder: Path) -> str:
    return (folder / "CHANGELOG.md").read_text()


def test_the_changelog_keeps_to_its_form() -> None:
    headings = re.findall(r"^## (.+)$", changelog(ROOT), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    kinds = re.findall(r"^### (.+)$", changelog(ROOT), re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


# ------------------------------------------------------------------------------------------------------- licence


def test_the_licence_is_the_one_that_the_pipe_and_the_package_name() -> None:
    assert (ROOT / "LICENSE").read_text().startswith("MIT License\n")
    assert (PROJECT["project"]["license"], PROJECT["project"]["license-files"]) == ("MIT", ["LICENSE"])
    for function in FUNCTIONS:
        assert "\nlicense: MIT\n" in (ROOT / "pipe" / function).read_text()


def test_every_python_that_is_tested_is_named_in_the_classifiers() -> None:
    matrix = workflow("tests")["jobs"]["quick"]["strategy"]["matrix"]["python"]
    named = [name for name in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert named == [f"Programming Language :: Python :: {version}" for version in matrix]
    assert PROJECT["project"]["requires-python"] == f">={matrix[0]}"


# -------------------------------------------------------------------------------------------- forms and workflows


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((GITHUB / "workflows" / f"{name}.yml").read_text())
    return found


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_form_or_workflow_is_one(schema: str) -> None:
    ended = check_schema(schema, *SCHEMAS[schema])
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_workflow_that_is_none_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:"))
    assert check_schema("vendor.github-workflows", broken).returncode != 0


def test_every_form_is_checked() -> None:
    checked = {path for files in SCHEMAS.values() for path in files}
    assert {*GITHUB.rglob("*.yml"), *GITHUB.rglob("*.yaml")} <= checked


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_do_no_more_than_it_must(path: Path) -> None:
    read = workflow(path.stem)
    assert read["permissions"] == {"contents": "read"}
    allowed = {"publish": {"id-token": "write"}} if path.stem == "release" else {}
    assert {name: job["permissions"] for name, job in read["jobs"].items() if "permissions" in job} == allowed
    for job in read["jobs"].values():
        for step in job["steps"]:
            assert re.search(r"@(?:v\d+|release/v\d+|[0-9a-f]{40})$", step.get("uses", "@v1"))
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_what_the_papers_run_of_the_project_is_there() -> None:
    for path in (*WORKFLOWS, *ROOT.glob("*.md")):
        for script in set(re.findall(r"\bscripts/\w+(?:\.py)?", path.read_text())):
            assert (ROOT / script).exists(), f"{path.name}: {script}"


def test_the_hooks_use_what_is_in_the_environment() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = {hook["id"]: hook for hook in config["repos"][0]["hooks"]}
    assert {"ruff-check", "ruff-format", "mypy"} <= set(hooks)
    assert {hook["language"] for hook in hooks.values()} == {"system"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks.values())
