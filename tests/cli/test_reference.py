"""docs/reference/cli.md has a section for each command, with the options that the command line has."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import install_pipe
from callboard._cli import build_parser

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()


def rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            takes = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
            name = " ".join(filter(None, [*action.option_strings[:1], takes]))
            yield f"| `{name}` | {str(action.help) % vars(action)} |"


def test_the_reference_has_every_command_and_option_with_its_help() -> None:
    head, *others = re.split(r"^## (.+)\n", REFERENCE, flags=re.MULTILINE)
    sections = dict(zip(others[::2], others[1::2], strict=True))
    [commands] = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    entries = {f"callboard {entry.dest}": entry.help for entry in commands._choices_actions}
    assert list(sections) == list(entries)
    listed_commands = re.findall(r"^\| `callboard .*", head, re.MULTILINE)
    assert listed_commands == [f"| `{name}` | {what} |" for name, what in entries.items()]
    for name, parser in {**commands.choices, "install-pipe": install_pipe.build_parser(environment={})}.items():
        listed = set(re.findall(r"^\| `.*", sections[f"callboard {name}"], re.MULTILINE))
        expected = set(rows(parser))
        assert expected <= listed
        assert not any(line.startswith("| `-") for line in listed - expected)
