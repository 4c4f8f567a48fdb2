"""Write the parts of `docs/reference` that are generated from the code: settings, routes, events, valves.

    .venv/bin/python scripts/reference.py             write the pages that differ from the code
    .venv/bin/python scripts/reference.py --check     list these pages, and fail if there are any

Each page has one generated block between two marks; the rest of the page is written by hand.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from starlette.routing import Route

import callboard.agents.builtin  # noqa: F401 - whose skills have settings
from callboard import _metrics, _openai
from callboard._bundled_files import load_bundled_module
from callboard.http import run_routes, sign_in_routes, stored_routes
from callboard.settings import settings_classes, variable_of
from callboard_protocol.events import EVENT_CLASSES, EVENT_TYPES

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
BEGIN = "<!-- written by scripts/reference.py -->"
END = "<!-- end of what scripts/reference.py writes -->"

IN_WORDS = {"data_dir": "`~/.local/share/callboard`"}
"""Defaults that are computed when the settings are read."""

ROUTES = (
    ("Runs, waiting approvals, agents and health", run_routes.ROUTES),
    ("Stored data", stored_routes.ROUTES),
    ("Signing in to MCP servers", sign_in_routes.ROUTES),
    ("OpenAI's API", _openai.ROUTES),
    ("Metrics", _metrics.ROUTES),
)

JsonSchema = Mapping[str, Any]


def settings() -> str:
    """Return tables of the server's settings and of each skill's."""
    parts = []
    listed: set[str] = set()
    server, *skills = (kind for kind in settings_classes() if kind.__module__.startswith("callboard."))
    for kind in (server, *sorted(skills, key=lambda one: inspect.getdoc(one) or "")):
        # A skill may also read a setting of the server.
        fields = {name: field for name, field in kind.model_fields.items() if name not in listed}
        listed |= fields.keys()
        rows = [
            (f"`{variable_of(name)}`", IN_WORDS.get(name) or _default(field.default), _described(field))
            for name, field in fields.items()
        ]
        heading = (inspect.getdoc(kind) or "").splitlines()[0].partition(".")[0]
        parts.append(f"## {heading}\n\n{_table(('setting', 'default', 'description'), rows)}")
    return "\n\n".join(parts)


def valves() -> str:
    """Return the table of the pipe's valves."""
    rows = [
        (f"`{name}`", _default(field.default), _described(field))
        for name, field in load_bundled_module("pipe/callboard_pipe.py").Pipe.Valves.model_fields.items()
    ]
    return _table(("valve", "default", "description"), rows)


def routes() -> str:
    """Return a table of each group of routes."""
    parts = []
    for heading, group in ROUTES:
        rows = [(f"`{method} {path}`", _one_line(route.endpoint)) for route in group for method, path in _calls(route)]
        parts.append(f"## {heading}\n\n{_table(('route', 'description'), rows)}")
    return "\n\n".join(parts)


def events() -> str:
    """Return a section for each event with its docstring and its fields."""
    parts = []
    for kind, event in EVENT_CLASSES.items():
        if kind not in EVENT_TYPES:
            continue  # declared by another package
        schema = event.model_json_schema()
        fields = _table(("field", "type", "default"), _fields(schema, schema.get("$defs", {})))
        parts.append(f"## `{kind}`\n\n{inspect.getdoc(event)}\n\n{fields}")
    return "\n\n".join(parts)


GENERATED: dict[str, Callable[[], str]] = {
    "settings.md": settings,
    "routes.md": routes,
    "events.md": events,
    "valves.md": valves,
}


def outdated() -> Iterator[tuple[Path, str]]:
    """Yield the pages that differ from the code, each with its new text."""
    for name, generate in GENERATED.items():
        page = PAGES / name
        text = page.read_text("utf-8")
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise SystemExit(f"{page} has no block between {BEGIN!r} and {END!r}: put them where the block belongs.")
        wanted = f"{before}{BEGIN}\n\n{generate()}\n\n{END}{after}"
        if wanted != text:
            yield page, wanted


def _calls(route: Route) -> Iterator[tuple[str, str]]:
    path = re.sub(r":\w+}", "}", route.path)
    for method in sorted((route.methods or set()) - {"HEAD"}):
        yield method, path


def _one_line(documented: object) -> str:
    """Return the docstring on one line, escaped for a table."""
    return " ".join((inspect.getdoc(documented) or "").split()).replace("|", "\\|")


def _described(field: FieldInfo) -> str:
    text = (field.description or "").removesuffix(".")
    if get_origin(field.annotation) is not Literal:
        return text
    return f"{text}. One of {', '.join(f'`{choice}`' for choice in get_args(field.annotation))}"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "–" if value in (None, "", ()) else f"`{value}`"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _fields(schema: JsonSchema, definitions: Mapping[str, JsonSchema], above: str = "") -> Iterator[tuple[str, ...]]:
    """Yield a row for each field of an event, and for each field of nested objects."""
    for name, field in schema["properties"].items():
        if "const" in field:
            continue  # `type`, which is the heading
        place = f"{above}{name}"
        if "default" in field:
            default = f"`{json.dumps(field['default'])}`"
        else:
            default = "needed" if name in schema.get("required", ()) else "–"
        yield f"`{place}`", _type(field), default
        if "$ref" in field:
            yield from _fields(definitions[_name(field)], definitions, f"{place}.")


def _type(schema: JsonSchema) -> str:
    """Return the type of a field in words: "number, 0 to 100, or null"."""
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "$ref" in schema:
        return "object"
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}s"
    return str(schema["type"]) + _bounds(schema)


def _bounds(schema: JsonSchema) -> str:
    low = schema.get("minimum")
    high = schema.get("maximum")
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    if low is not None:
        return f" from {low:g}"
    if (above := schema.get("exclusiveMinimum")) is not None:
        return f" above {above:g}"
    return ""


def _name(schema: JsonSchema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def main() -> int:
    """Write the pages, or list the outdated ones with `--check`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is outdated")
    check = parser.parse_args().check
    pages = list(outdated())
    for page, wanted in pages:
        if check:
            print(f"{page.relative_to(ROOT)} differs from the code: run scripts/reference.py", file=sys.stderr)
        else:
            page.write_text(wanted, "utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
    return 1 if check and pages else 0


if __name__ == "__main__":
    sys.exit(main())
