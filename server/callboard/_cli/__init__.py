"""The command line: what `callboard` and a word after it do.

One module a command, imported when it is asked for: what prints a file need not load a web
server, a database and the agents. Above: nothing. Below: everything.
"""

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from callboard._version import __version__
from callboard.errors import CallboardError, SettingsError

INTERRUPTED = 130
"""The exit code that a shell reports of a command that Ctrl-C ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # What follows it is read by a parser of its own, which works without this package too.
    rest = given[1:] if given[:1] == ["install-pipe"] else []
    chosen = parse(given[:1] if rest else given, argparse.Namespace(rest=rest))
    try:
        # Without arguments this is the process of a command, not a program that calls one.
        with _freezing_imports() if arguments is None else nullcontext():
            module = import_module(f"callboard._cli.{chosen.command.replace('-', '_')}")
        return int(module.run(chosen))
    except SettingsError as error:
        print(f"callboard: the settings are wrong\n{error}", file=sys.stderr)
    except CallboardError as error:
        print(f"callboard: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Who read the output has gone: `callboard export … | head`. Python would flush once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


@contextmanager
def _freezing_imports() -> Iterator[None]:
    """Exclude everything that the block imports from garbage collection: modules stay until the process ends.

    The collections during its imports took a sixth of the time that `callboard serve` needs to start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def parse(given: Sequence[str], namespace: argparse.Namespace) -> argparse.Namespace:
    """Return what is chosen on the command line; exits where that is wrong."""
    parser = build_parser()
    chosen, left = parser.parse_known_args(given, namespace)
    if chosen.command == "chat" and not any(word.startswith("-") for word in left):
        # Before 3.13 argparse takes no positional arguments after an option that follows the first of them.
        chosen.question += left
    elif left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return chosen


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; `install-pipe` has one of its own behind it, for the `rest`."""
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
"""What the commands are added to; argparse has no public name for it."""


def _add_server(commands: Commands) -> None:
    """Add `serve`, and `agents` that lists what it would serve."""
    serve = commands.add_parser("serve", help="start the server")
    how = serve.add_mutually_exclusive_group()
    how.add_argument("--reload", action="store_true", help="start again when a file of your agents changes")
    how.add_argument(
        "--workers",
        type=number,
        default=1,
        metavar="N",
        help="run N processes on the one port, over PostgreSQL (default: 1)",
    )

    commands.add_parser("agents", help="list the agents that were found, and what is missing and why")


def _add_chat(commands: Commands) -> None:
    """Add `chat`, which talks to an agent."""
    chat = commands.add_parser("chat", help="talk to an agent in the terminal; without one, list the agents")
    chat.add_argument("agent", nargs="?", metavar="AGENT", help="the agent's id; without it the agents are listed")
    chat.add_argument(
        "question",
        nargs="*",
        metavar="QUESTION",
        help="ask this and end with its answer; without it standard input is asked, in a terminal one line at a time",
    )
    chat.add_argument("--chat", metavar="ID", help="go on with this chat, or begin one of this id")
    chat.add_argument("--user", metavar="ID", help="the user who asks, whose chats and memories they are")
    chat.add_argument("--role", metavar="ROLE", help="the user's role, as Open WebUI has it; user by default")
    chat.add_argument(
        "--group", action="append", default=[], metavar="NAME", help="a group that the user is in; once for each"
    )
    chat.add_argument("--url", metavar="URL", help="the server's address; without it that of the settings")
    chat.add_argument("--files", type=Path, metavar="FOLDER", help="keep the files of tools in this folder")
    chat.add_argument("--json", action="store_true", help="write the run's events as JSON Lines; ask nobody anything")
    chat.add_argument("--verbose", action="store_true", help="show all of every call: arguments, steps, result")


def _add_doctor(commands: Commands) -> None:
    """Add `doctor`, which checks everything."""
    doctor = commands.add_parser(
        "doctor", help="check everything, and say what to do; exit 1 where something is broken"
    )
    doctor.add_argument("--timeout", type=seconds, default=30.0, metavar="SECONDS", help=TIMEOUT_HELP)
    webui = doctor.add_argument_group("Open WebUI", "OPEN_WEBUI_… in the environment serve where they are not given.")
    webui.add_argument("--open-webui", metavar="URL", help="check the pipe in the Open WebUI at this address too")
    webui.add_argument("--email", help="email of an admin there")
    webui.add_argument("--password", help="its password; asked for when it is not given")
    webui.add_argument("--api-key", help="an admin's API key instead of both")
    webui.add_argument("--id", default="callboard", help="the function's id there (default: %(default)s)")


def _add_key(commands: Commands) -> None:
    """Add `key`, which makes, lists and removes the keys of clients."""
    key = commands.add_parser("key", help="print the key that clients must send, made now if there is none")
    what = key.add_mutually_exclusive_group()
    what.add_argument("--quiet", action="store_true", help="make it if there is none, and print nothing")
    what.add_argument("--add", metavar="NAME", help="make a further key of that name, and print it this once")
    what.add_argument("--remove", metavar="NAME", help="let nobody in any more by the key of that name")
    what.add_argument("--list", action="store_true", help="print the names of the further keys")


def _add_stored_data(commands: Commands) -> None:
    """Add `export`, `forget`, `audit`, `backup` and `restore`: what is done with what is stored."""
    export = commands.add_parser("export", help="print a stored chat, or all that is kept of a user, as JSON Lines")
    which = export.add_mutually_exclusive_group(required=True)
    which.add_argument("--chat", metavar="ID", help="the chat's id, as Open WebUI's address bar shows it")
    which.add_argument("--user", type=identifier, metavar="ID", help="the user's id, as Open WebUI has it")

    forget = commands.add_parser("forget", help="delete everything that is kept of a user")
    forget.add_argument(
        "--user", required=True, type=identifier, metavar="ID", help="the user's id, as Open WebUI has it"
    )

    audit = commands.add_parser("audit", help="print who ran what, who agreed to it and when, as JSON Lines")
    audit.add_argument("--user", metavar="ID", help="of this user alone")
    audit.add_argument("--agent", metavar="ID", help="of this agent alone")
    audit.add_argument("--tool", metavar="NAME", help="of this tool alone")
    audit.add_argument("--chat", metavar="ID", help="of this chat alone")
    audit.add_argument("--run", metavar="ID", help="of this run alone")
    audit.add_argument("--kind", choices=AUDIT_KINDS, metavar="KIND", help=f"one of {', '.join(AUDIT_KINDS)}")
    audit.add_argument("--since", type=moment, metavar="TIME", help="from then on: 2026-01-31T18:00, UTC by default")
    audit.add_argument("--until", type=moment, metavar="TIME", help="up to then")

    backup = commands.add_parser("backup", help="copy the database into a new file while servers write to it")
    backup.add_argument("file", type=Path, metavar="FILE", help="the copy; there must be no such file yet")

    restore = commands.add_parser("restore", help="put a copy in the place of the database, while no server uses it")
    restore.add_argument("file", type=Path, metavar="FILE", help="the copy; it stays as it is")


def _add_pipe(commands: Commands) -> None:
    """Add `pipe`, which prints the pipe, and `install-pipe`."""
    pipe = commands.add_parser("pipe", help="print the pipe, to paste it under Admin Panel → Functions in Open WebUI")
    pipe.add_argument("--events", action="store_true", help="print the function for events instead")

    commands.add_parser(
        "install-pipe", add_help=False, help="install or update the pipe in an Open WebUI; --help lists its options"
    )


AUDIT_KINDS = ("call", "handed_over", "approved", "ended", "forgotten")
TIMEOUT_HELP = "most seconds that a check may take (default: %(default)g); a large model may need more to load"


def number(text: str) -> int:
    """Return a number of processes that is given on the command line; argparse names this function where it is none."""
    given = int(text)
    if given < 1:
        raise ValueError(text)
    return given


def moment(text: str) -> float:
    """Return a time that is given on the command line, in seconds since the epoch; argparse names this function."""
    given = datetime.fromisoformat(text)
    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()


def identifier(text: str) -> str:
    """Return an id that is given on the command line; argparse names this function where it is none."""
    if not text:
        raise ValueError(text)
    return text


def seconds(text: str) -> float:
    """Return a time that is given on the command line; argparse names this function where it is none."""
    given = float(text)
    if not 0 < given < float("inf"):
        raise ValueError(text)
    return given
