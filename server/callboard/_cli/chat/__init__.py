"""`callboard chat`: a conversation with an agent in a terminal, or one answer for a script.

It is a client of the server's own routes, as the pipe is. Where no server runs, one is begun in this process. What is
drawn, and what is only written, is decided here; nothing below asks the environment.
"""

import argparse
import asyncio
import os
import secrets
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from callboard._cli import INTERRUPTED
from callboard._cli.chat.answer import Answer
from callboard._cli.chat.client import CONNECT_SECONDS, Address, ListedAgent, ServerClient, ServerProblem
from callboard._cli.chat.displays import Display, Drawn, JsonLines, Plain
from callboard._cli.chat.files import describe_file, keep_file, read_file
from callboard._cli.chat.keyboard import Keyboard
from callboard._cli.chat.screen import Painter, Screen, Span, read_size
from callboard._cli.chat.turn import Ending, Turn
from callboard._cli.chat.visible import make_line
from callboard._cli.health import ask_health
from callboard._settings import Settings, load_settings
from callboard.errors import CallboardError
from callboard_protocol import RunRequest, User

MIN_COLUMNS = 30
"""In a terminal that is narrower nothing is drawn: plain lines are easier to read there."""

PROMPT = "› "

EXIT_CODES: dict[Ending, int] = {"well": 0, "badly": 1, "stopped": INTERRUPTED, "left": INTERRUPTED}


def run(options: argparse.Namespace) -> int:
    """Talk to the agent; the exit code of a single question says whether its run ended well."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Not every terminal has every character.
            stream.reconfigure(errors="backslashreplace")
    settings = load_settings()
    user = _read_user(options)
    with ExitStack() as closing:
        runner = closing.enter_context(asyncio.Runner())
        address = _find_server(runner, options.url, settings)
        if address is None:
            # Imported where it is needed: agents, a database and a web server.
            from callboard._cli.chat.own_server import serving

            address = closing.enter_context(serving(settings))
        client = ServerClient(address, user)
        agents = runner.run(client.list_agents())
        if options.agent is None:
            print("\n".join(_list_agents(agents)))
            return 0
        known = {agent.agent_id: agent for agent in agents}
        if options.agent not in known:
            lines = "\n".join(_list_agents(agents))
            raise CallboardError(f"there is no agent {make_line(options.agent)!r}; there are\n{lines}")
        chat = _open_chat(runner, client, options)
        return _answer_once(runner, chat) if _is_once(options) else _converse(runner, chat, known[options.agent])


@dataclass(slots=True)
class _Chat:
    """A conversation: its messages so far, as a client of the server tells them."""

    client: ServerClient
    options: argparse.Namespace
    chat_id: str
    messages: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, runner: asyncio.Runner, question: str) -> Ending:
        """Ask one question, and show its answer."""
        message_id = uuid4().hex
        self.messages.append({"role": "user", "content": question})
        request = RunRequest.model_validate(
            {
                "agent": self.options.agent,
                "chat_id": self.chat_id,
                "message_id": message_id,
                "user": self.client.user,
                "messages": self.messages,
                "run_id": uuid4().hex,
            }
        )
        display = _make_display(self.options, self.client.public_url)
        ending = runner.run(self._play(request, display))
        # With its id alone the server puts the calls of an earlier answer back, with their whole results.
        self.messages.append({"role": "assistant", "id": message_id, "content": display.answer.text})
        if self.options.files is not None:
            runner.run(self._keep_files(display.answer, self.options.files))
        return ending

    async def _keep_files(self, answer: Answer, folder: Path) -> None:
        for file in answer.files:
            try:
                content = await read_file(file, self.client.fetch_file)
                if content is not None:
                    print(f"⇩ {make_line(str(keep_file(file, content, folder)))}", file=sys.stderr)
            except (ServerProblem, OSError, ValueError) as problem:
                print(f"callboard: {describe_file(file)} is not kept: {make_line(str(problem))}", file=sys.stderr)

    async def _play(self, request: RunRequest, display: Display) -> Ending:
        return await Turn(self.client, display, _find_keyboard(self.options)).play(request)


def _read_user(options: argparse.Namespace) -> User | None:
    """Return the user who asks; None for nobody by name, who has no role and is in no group."""
    if options.user:
        try:
            return User(id=options.user, role=options.role or "user", groups=tuple(options.group))
        except ValidationError:
            raise CallboardError("--user: an id has up to 255 characters, and no control characters") from None
    if options.role or options.group:
        raise CallboardError("--role and --group are those of a user: name them with --user ID")
    return None


def _find_server(runner: asyncio.Runner, url: str | None, settings: Settings) -> Address | None:
    """Return where the server is: at the address that was given, or where the settings say; None where none is."""
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    user_secret = settings.open_webui_jwt_secret.get_secret_value() if settings.open_webui_jwt_secret else ""
    if url:
        return Address(url.strip(), key, user_secret=user_secret)
    own = settings.own_url
    if not own or runner.run(ask_health(own, CONNECT_SECONDS)) is None:
        return None
    return Address(own, key, user_secret=user_secret)


def _list_agents(agents: Sequence[ListedAgent]) -> list[str]:
    return [f"{make_line(agent.agent_id)}: {make_line(agent.description)}" for agent in agents]


def _open_chat(runner: asyncio.Runner, client: ServerClient, options: argparse.Namespace) -> _Chat:
    if options.chat is None:
        return _Chat(client, options, secrets.token_hex(8))
    return _Chat(client, options, options.chat, read_turns(runner.run(client.load_chat(options.chat))))


def read_turns(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return stored messages as a client tells them: each answer's text, under the id by which its calls are found."""
    messages: list[dict[str, Any]] = []
    for message_id, group in groupby(rows, key=lambda row: row["message_id"]):
        turn = list(group)
        messages += [{"role": "user", "content": row["content"]} for row in turn if row["role"] == "user"]
        said = [row["content"] for row in turn if row["role"] == "assistant" and row["content"]]
        answer: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(text.strip() for text in said)}
        messages.append({**answer, "id": message_id} if message_id else answer)
    return messages


def _is_once(options: argparse.Namespace) -> bool:
    return bool(options.question) or options.json or not sys.stdin.isatty()


def _answer_once(runner: asyncio.Runner, chat: _Chat) -> int:
    question = " ".join(chat.options.question) or _read_question()
    ending = chat.ask(runner, question)
    if not chat.options.json:
        print(f"Go on with: {_write_command(chat)}", file=sys.stderr)
    return EXIT_CODES[ending]


def _read_question() -> str:
    if sys.stdin.isatty():
        raise CallboardError("there is no question: give it as an argument, or by standard input")
    question = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if not question:
        raise CallboardError("there is no question: standard input is empty")
    return question


def _converse(runner: asyncio.Runner, chat: _Chat, agent: ListedAgent) -> int:
    with suppress(ImportError):
        # The prompt has a history and can be edited where this is there.
        import readline  # noqa: F401 - imported for what it does to input()
    earlier = sum(message["role"] == "user" for message in chat.messages)
    match earlier:
        case 0:
            state = "is new"
        case 1:
            state = "goes on after 1 question"
        case _:
            state = f"goes on after {earlier} questions"
    _say(f"{make_line(agent.agent_id)}: {make_line(agent.description)}")
    _say(f"The chat {state}; later: {_write_command(chat)}")
    _say("Ctrl-C stops an answer, Ctrl-D ends, /help says more.")
    while (question := _read_line()) is not None:
        if question.strip() == "/help":
            for line in _write_help(chat):
                _say(line)
        elif question.strip() and chat.ask(runner, question) == "left":
            return INTERRUPTED
    return 0


def _write_help(chat: _Chat) -> list[str]:
    return [
        "Every line is a question to the agent, except /help.",
        "Ctrl-C stops an answer; a second Ctrl-C leaves. Ctrl-D at the prompt ends.",
        "A call that has to be approved runs after y and Enter; any other answer refuses it.",
        f"Go on with this chat later: {_write_command(chat)}",
        "Options, such as --verbose and --files: callboard chat --help",
    ]


def _read_line() -> str | None:
    """Return what the user types; None at the end of it."""
    _say("")
    try:
        if sys.stdout.isatty():
            return input(PROMPT)
        # There input() would write the prompt between the answers.
        print(PROMPT, end="", file=sys.stderr, flush=True)
        return input()
    except EOFError:
        _say("")
        return None


def _say(words: str) -> None:
    if not sys.stdout.isatty():
        print(words, file=sys.stderr)
        return
    painter = Painter(_has_colour())
    print(painter.paint([Span(words, "dim")], read_size(sys.stdout).columns) if _may_draw() else words)


def _write_command(chat: _Chat) -> str:
    parts = ["callboard", "chat", chat.options.agent, "--chat", chat.chat_id]
    for name in ("url", "user", "role"):
        if value := getattr(chat.options, name):
            parts += [f"--{name}", value]
    for group in chat.options.group:
        parts += ["--group", group]
    return make_line(shlex.join(parts))


def _make_display(options: argparse.Namespace, server_url: str) -> Display:
    answer = Answer(server_url)
    if options.json:
        return JsonLines(answer, sys.stdout)
    if not _may_draw():
        return Plain(answer, sys.stdout, sys.stderr, is_verbose=options.verbose)
    screen = Screen(sys.stdout, Painter(_has_colour()))
    return Drawn(answer, screen, sys.stdout, is_verbose=options.verbose)


def _may_draw() -> bool:
    """Return whether standard output is a terminal that can be drawn on."""
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return is_terminal and read_size(sys.stdout).columns >= MIN_COLUMNS


def _has_colour() -> bool:
    return not os.environ.get("NO_COLOR")


def _find_keyboard(options: argparse.Namespace) -> Keyboard | None:
    """Return what the user answers with; None where nobody would see the question, or could answer it."""
    is_shown = sys.stdout.isatty() if _may_draw() else sys.stderr.isatty()
    return Keyboard(sys.stdin) if is_shown and sys.stdin.isatty() and not options.json else None
