"""Make the locks requirements/server.txt, all.txt and dev.txt from pyproject.toml with uv, and check that they fit it.

Each lock pins all packages with their hashes, for every platform and Python, and names no package index. A package has
the same version in all three.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
HEADER = "# Made by scripts/lock from pyproject.toml; not to be edited.\n"
OLDEST_PYTHON = "3.11"


@dataclass(frozen=True)
class Scope:
    """The extras and dependency groups of pyproject.toml that a lock includes."""

    name: str
    extras: Sequence[str]
    groups: Sequence[str]

    @property
    def file(self) -> Path:
        """The lock file."""
        return FOLDER / f"{self.name}.txt"


# The widest first, because the others take its versions.
SCOPES = (
    Scope("dev", extras=("all",), groups=("dev", "build")),
    Scope("all", extras=("all",), groups=("build",)),
    Scope("server", extras=("agents",), groups=("build",)),
)


# ------------------------------------------------------------------------------------------------- make


def make(*, upgrade: bool) -> None:
    """Write the locks; raises `CalledProcessError` if uv finds no versions that fit."""
    FOLDER.mkdir(exist_ok=True)
    widest = SCOPES[0].file
    for scope in SCOPES:
        command = [_uv(), "pip", "compile", "pyproject.toml", "--quiet", "--universal", "--generate-hashes"]
        command += ["--python-version", OLDEST_PYTHON, "--no-header", "--output-file", str(scope.file)]
        command += [word for extra in scope.extras for word in ("--extra", extra)]
        command += [word for group in scope.groups for word in ("--group", group)]
        if scope.file != widest:
            command += ["--constraint", str(widest)]
        elif upgrade:
            command += ["--upgrade"]
        subprocess.run(command, cwd=ROOT, check=True)
        scope.file.write_text(HEADER + scope.file.read_text("utf-8"), "utf-8")


def _uv() -> str:
    own = Path(sys.executable).with_name("uv")
    return str(own) if own.exists() else "uv"


# ------------------------------------------------------------------------------------------------ check


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each difference between the locks and pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    pinned: dict[str, dict[str, set[Version]]] = {}
    for scope in SCOPES:
        file = root / "requirements" / f"{scope.name}.txt"
        if not file.exists():
            yield f"{file.name} is missing"
            continue
        text = file.read_text("utf-8")
        if "://" in text or re.search(r"^\s*-(?!-hash=)", text, re.MULTILINE):
            yield f"{file.name} has a URL or an option: only names, versions and hashes are allowed"
        lock = read_lock(text)
        pinned[scope.name] = lock.pins
        misfits = _misfits(wanted(project, scope), lock)
        yield from (f"{file.name}: {line}" for line in (*lock.unreadable, *misfits))
    yield from _disagreements(pinned)


def wanted(project: Mapping[str, Any], scope: Scope) -> list[Requirement]:
    """Return the requirements of pyproject.toml for a lock, including those of extras and groups."""
    table = project["project"]
    extras: dict[str, Sequence[str]] = {
        canonicalize_name(name): lines for name, lines in table["optional-dependencies"].items()
    }
    lines = list(table["dependencies"])
    for extra in scope.extras:
        lines += _expanded(extras[canonicalize_name(extra)], extras, canonicalize_name(table["name"]))
    for group in scope.groups:
        lines += _group(project["dependency-groups"], group)
    return [Requirement(line) for line in lines]


def _expanded(lines: Sequence[str], extras: Mapping[str, Sequence[str]], own_name: str) -> Iterator[str]:
    for line in lines:
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) != own_name:
            yield line
            continue
        for extra in requirement.extras:
            yield from _expanded(extras[canonicalize_name(extra)], extras, own_name)


def _group(groups: Mapping[str, Sequence[Any]], name: str) -> Iterator[str]:
    for entry in groups[name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from _group(groups, entry["include-group"])


@dataclass(frozen=True)
class Lock:
    """The content of a lock: `pins` has the versions of each package, several if platforms differ.

    `direct` has the packages that pyproject.toml itself requires, according to the lock; `unreadable` has the entries
    that are not pins.
    """

    pins: dict[str, set[Version]]
    direct: set[str]
    unreadable: list[str]


def read_lock(text: str) -> Lock:
    """Parse a lock."""
    lock = Lock({}, set(), [])
    for entry in re.split(r"\n(?=\S)", text.strip()):
        if entry.startswith("#"):
            continue
        head, *rest = (line.strip().removesuffix("\\").strip() for line in entry.splitlines())
        hashes = [line for line in rest if not line.startswith("#")]
        pin = _read_pin(head)
        if pin is None or not hashes or not all(line.startswith("--hash=sha256:") for line in hashes):
            lock.unreadable.append(f"{head!r} is not a version with hashes")
            continue
        name, version = pin
        lock.pins.setdefault(name, set()).add(version)
        if any("(pyproject.toml" in line for line in rest):
            lock.direct.add(name)
    return lock


def _read_pin(line: str) -> tuple[str, Version] | None:
    try:
        requirement = Requirement(line)
        [pin] = requirement.specifier
        version = Version(pin.version)
    except (InvalidRequirement, InvalidVersion, ValueError):
        return None
    return (canonicalize_name(requirement.name), version) if pin.operator == "==" else None


def _misfits(requirements: Sequence[Requirement], lock: Lock) -> Iterator[str]:
    for requirement in requirements:
        versions = lock.pins.get(canonicalize_name(requirement.name), set())
        if not versions:
            yield f"{requirement.name} is missing"
        for version in versions:
            if not requirement.specifier.contains(version, prereleases=True):
                yield f"{requirement.name} {version} does not fit {requirement}"
    for name in sorted(lock.direct - {canonicalize_name(requirement.name) for requirement in requirements}):
        yield f"{name} is no longer required"


def _disagreements(pinned: Mapping[str, Mapping[str, set[Version]]]) -> Iterator[str]:
    widest = pinned.get(SCOPES[0].name, {})
    for scope in SCOPES[1:]:
        for name, versions in pinned.get(scope.name, {}).items():
            if not versions <= widest.get(name, set()):
                yield f"{scope.name}.txt and {SCOPES[0].name}.txt have different versions of {name}"


# ----------------------------------------------------------------------------------------- command line


def main() -> int:
    """Make or check the locks; returns 1 if they do not fit pyproject.toml."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="use the newest versions that fit")
    parser.add_argument("--check", action="store_true", help="only check that the locks fit pyproject.toml")
    options = parser.parse_args()
    if not options.check:
        try:
            make(upgrade=options.upgrade)
        except FileNotFoundError:
            print("scripts/lock needs uv: it is among the developers' tools (scripts/install dev).", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            return error.returncode
    found = list(problems())
    for line in found:
        print(f"requirements/{line}: run scripts/lock", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
