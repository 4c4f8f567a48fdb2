"""The command line: `callboard COMMAND`.

Each command has a module, or shares one, which is imported only if the command is given: `callboard pipe` prints a file
and needs no web server, database or agents. No other package imports this one, and this one may import every package.
"""

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from callboard._version import __version__
from callboard.errors import CallboardError, SettingsError

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended, as in shells."""

STORED_DATA = ("export", "forget", "backup", "restore")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # `install-pipe` has its own parser, because its script also runs without this package.
    rest = given[1:] if given[:1] == ["install-pipe"] else []
    chosen = parse(given[:1] if rest else given, argparse.Namespace(rest=rest))
    try:
        # With arguments, another program calls this function. Its garbage collection is not changed.
        with _freeze_imports() if arguments is None else nullcontext():
            name = "stored_data" if chosen.command in STORED_DATA else chosen.command.replace("-", "_")
            module = import_module(f"callboard._cli.{name}")
        return int(module.run(chosen))
    except SettingsError as error:
        print(f"callboard: the settings are wrong\n{error}", file=sys.stderr)
    except CallboardError as error:
        print(f"callboard: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has ended: `callboard export … | head`. Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


@contextmanager
def _freeze_imports() -> Iterator[None]:
    """Exclude the modules that the block imports from garbage collection, because modules are never freed.

    Garbage collections during the imports took a sixth of the start time of `callboard serve`.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def parse(given: Sequence[str], namespace: argparse.Namespace) -> argparse.Namespace:
    """Return the command and its options. If they are wrong, print a message and exit."""
    parser = build_parser()
    chosen, left = parser.parse_known_args(given, namespace)
    if chosen.command == "chat" and not any(word.startswith("-") for word in left):
        # Before Python 3.13, argparse accepts no positional arguments behind an option that follows the first of them.
        chosen.question += left
    elif left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return chosen


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, without the options of `install-pipe`, which has its own parser."""
    parser = argparse.ArgumentParser(
        prog="callboard",
        description="Agents for Open WebUI, every tool call in sight.",
        epilog="Settings come from the environment (CALLBOARD_…) and from the file .env in the working directory.",
    )
    parser.add_argument("--version", action="version", version=f"callboard {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_server(commands)
    _add_chat(commands)
    _add_doctor(commands)
    _add_key(commands)
    _add_stored_data(commands)
    _add_pipe(commands)
    return parser


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The type that `add_subparsers` returns, which has no public name in argparse."""


def _add_server(commands: Commands) -> None:
    """Add `serve` and `agents`."""
    commands.add_parser("serve", help="start the server")
    commands.add_parser("agents", help="list the agents, their tools, and which agents could not be loaded and why")


def _add_chat(commands: Commands) -> None:
    chat = commands.add_parser("chat", help="talk to an agent in the terminal; without one, list the agents")
    chat.add_argument("agent", nargs="?", metavar="AGENT", help="the agent's id; without it the agents are listed")
    chat.add_argument(
        "question",
        nargs="*",
        metavar="QUESTION",
        help="ask this question, print the answer and end; without it, read questions from standard input, "
        "in a terminal line by line",
    )
    chat.add_argument("--chat", metavar="ID", help="continue this chat, or begin one with this id")
    chat.add_argument("--user", metavar="ID", help="ask as this user, with their chats and memories")
    chat.add_argument("--role", metavar="ROLE", help="the user's role in Open WebUI (default: user)")
    chat.add_argument(
        "--group", action="append", default=[], metavar="NAME", help="a group of the user; may be repeated"
    )
    chat.add_argument("--url", metavar="URL", help="the server's address (default: the one in the settings)")


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser("doctor", help="check settings, database, model and Open WebUI, and say what to do")
    doctor.add_argument("--timeout", type=seconds, default=30.0, metavar="SECONDS", help=TIMEOUT_HELP)
    webui = doctor.add_argument_group("Open WebUI", "The defaults are OPEN_WEBUI_… in the environment.")
    webui.add_argument("--open-webui", metavar="URL", help="also check the pipe in the Open WebUI at this address")
    webui.add_argument("--email", help="email of an admin there")
    webui.add_argument("--password", help="the admin's password (default: you are asked for it)")
    webui.add_argument("--api-key", help="an admin's API key instead of both")
    webui.add_argument("--id", default="callboard", help="the function's id there (default: %(default)s)")


def _add_key(commands: Commands) -> None:
    key = commands.add_parser("key", help="print the key that clients must send; make it first if there is none")
    action = key.add_mutually_exclusive_group()
    action.add_argument("--quiet", action="store_true", help="make the key if there is none, and print nothing")
    action.add_argument("--add", metavar="NAME", help="make another key with this name, and print it once")
    action.add_argument("--remove", metavar="NAME", help="remove the key with this name, so that it is refused")
    action.add_argument("--list", action="store_true", help="print the names of the named keys")


def _add_stored_data(commands: Commands) -> None:
    """Add the commands of `STORED_DATA`."""
    export = commands.add_parser("export", help="print a stored chat, or all stored data of a user, as JSON Lines")
    which = export.add_mutually_exclusive_group(required=True)
    which.add_argument("--chat", metavar="ID", help="the chat's id, as Open WebUI's address bar shows it")
    which.add_argument("--user", type=identifier, metavar="ID", help="the user's id, as Open WebUI has it")

    forget = commands.add_parser("forget", help="delete all stored data of a user")
    forget.add_argument(
        "--user", required=True, type=identifier, metavar="ID", help="the user's id, as Open WebUI has it"
    )

    backup = commands.add_parser("backup", help="copy the database into a new file; servers may write to it meanwhile")
    backup.add_argument("file", type=Path, metavar="FILE", help="the copy; the file must not exist yet")

    restore = commands.add_parser("restore", help="replace the database with a copy, while no server uses it")
    restore.add_argument("file", type=Path, metavar="FILE", help="the copy; it is not changed")


def _add_pipe(commands: Commands) -> None:
    pipe = commands.add_parser("pipe", help="print the pipe, to paste it under Admin Panel → Functions in Open WebUI")
    printed = pipe.add_mutually_exclusive_group()
    printed.add_argument("--events", action="store_true", help="print the function for events instead")
    printed.add_argument("--filter", action="store_true", help="print the function for approvals that wait instead")

    commands.add_parser(
        "install-pipe", add_help=False, help="install or update the pipe in an Open WebUI; --help lists its options"
    )


TIMEOUT_HELP = "maximum duration of a check (default: %(default)g); a large model may need longer to load"

# argparse names these functions in its messages: "argument --timeout: invalid seconds value: 'x'".


def identifier(text: str) -> str:
    """Return the id. An empty id is refused."""
    if not text:
        raise ValueError(text)
    return text


def seconds(text: str) -> float:
    """Return the duration in seconds, which is positive and finite."""
    given = float(text)
    if not 0 < given < float("inf"):
        raise ValueError(text)
    return given
