"""docs/reference/cli.md lists every command with its options as the command line has them."""

import argparse
import re
from pathlib import Path

import install_pipe
from callboard._cli import build_parser
from callboard._cli.doctor import CHECKS
from callboard.models import LOCAL_ENDPOINTS

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()


def block(name: str) -> str:
    found = re.search(rf"<!-- {name}:[^\n]*-->\n(.*?)<!-- /{name} -->", REFERENCE, re.DOTALL)
    assert found, f"there is no block {name}"
    return found[1].strip()


def table(title: str, rows: list[tuple[str, str]]) -> str:
    return "\n".join(
        [f"| {title} | description |", "| --- | --- |", *(f"| `{name}` | {what} |" for name, what in rows)]
    )


def commands() -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    [found] = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return found


def options(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    rows = []
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            takes = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
            said = str(action.help) % vars(action)
            rows.append((" ".join(filter(None, [*action.option_strings[:1], takes])), said))
    return rows


def test_the_reference_has_every_command_with_its_help() -> None:
    rows = [(f"callboard {entry.dest}", str(entry.help)) for entry in commands()._choices_actions]
    assert block("commands") == table("command", rows)
    assert re.findall(r"^## (.+)$", REFERENCE, re.MULTILINE) == [name for name, _ in rows]


def test_the_reference_has_every_option_of_every_command() -> None:
    parsers = dict(commands().choices) | {"install-pipe": install_pipe.build_parser(environment={})}
    with_options = {name: rows for name, parser in parsers.items() if (rows := options(parser))}
    kept = {"export", "forget", "audit", "backup", "restore"}
    assert with_options.keys() == kept | {"serve", "chat", "doctor", "key", "pipe", "install-pipe"}
    for name, rows in with_options.items():
        assert block(name) == table("option", rows)


def test_the_reference_has_the_programs_of_local_models() -> None:
    rows = [f"| {one.program} | {one.port} |" for one in LOCAL_ENDPOINTS]
    assert block("endpoints") == "\n".join(["| program | port |", "| --- | --- |", *rows])


def test_the_reference_has_every_check_of_the_doctor() -> None:
    head, line, *rows = block("checks").splitlines()
    assert (head, line) == ("| check | what it does |", "| --- | --- |")
    assert [row.split("|")[1].strip() for row in rows] == ["settings", *CHECKS]
