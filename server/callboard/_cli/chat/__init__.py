"""`callboard chat`: a conversation with an agent in a terminal, or one answer for a script.

It is a client of the server's routes, like the pipe. If no server runs, it starts one in this process. Rich and Prompt
Toolkit are imported only if there is a terminal.
"""

import argparse
import asyncio
import os
import secrets
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import ValidationError

from callboard._cli import INTERRUPTED
from callboard._cli.chat.answer import Answer
from callboard._cli.chat.client import CONNECT_SECONDS, Address, ListedAgent, ServerClient, ServerProblem
from callboard._cli.chat.displays import Display, JsonLines, Plain
from callboard._cli.chat.files import describe_file, read_file, save_file
from callboard._cli.chat.turn import Outcome, Turn
from callboard._cli.chat.visible import make_line
from callboard._cli.health import ask_health
from callboard._settings import Settings, load_settings
from callboard.errors import CallboardError
from callboard_protocol import RunRequest, User

if TYPE_CHECKING:
    from callboard._cli.chat.keyboard import Keyboard

PROMPT = "› "

HELP = """\
/help   show this
/quit   end the conversation, as Ctrl-D does
Ctrl-C  stop the answer; once more: leave at once
↑ ↓     earlier questions
Any other line is a question to the agent."""

EXIT_CODES: dict[Outcome, int] = {"answered": 0, "failed": 1, "stopped": INTERRUPTED, "left": INTERRUPTED}


def run(options: argparse.Namespace) -> int:
    """Talk to the agent; after a single question the exit code says whether it was answered."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Some terminals lack some characters.
            stream.reconfigure(errors="backslashreplace")
    settings = load_settings()
    user = _read_user(options)
    with ExitStack() as closing:
        address = asyncio.run(_find_server(options.url, settings))
        if address is None:
            # Imported only if needed, because it imports agents, a database and a web server.
            from callboard._cli.chat.own_server import serving_agents

            address = closing.enter_context(serving_agents(settings))
        return asyncio.run(_talk(ServerClient(address, user), options))


async def _talk(client: ServerClient, options: argparse.Namespace) -> int:
    agents = await client.list_agents()
    lines = "\n".join(f"{make_line(agent.agent_id)}: {make_line(agent.description)}" for agent in agents)
    if options.agent is None:
        print(lines)
        return 0
    known = {agent.agent_id: agent for agent in agents}
    if options.agent not in known:
        raise CallboardError(f"there is no agent {make_line(options.agent)!r}; the agents are\n{lines}")
    chat = _Chat(client, options, options.chat or secrets.token_hex(8), keyboard=_find_keyboard(options))
    if options.chat:
        chat.messages = to_messages(await client.load_chat(options.chat))
    is_once = options.question or options.json or not sys.stdin.isatty()
    return await (_answer_once(chat) if is_once else _converse(chat, known[options.agent]))


@dataclass(slots=True)
class _Chat:
    """A conversation: its messages so far, in the form of requests; `keyboard` is None without a terminal."""

    client: ServerClient
    options: argparse.Namespace
    chat_id: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    keyboard: "Keyboard | None" = None

    @property
    def command(self) -> str:
        """The command line that continues this chat."""
        parts = ["callboard", "chat", self.options.agent, "--chat", self.chat_id]
        for name in ("url", "user", "role"):
            if value := getattr(self.options, name):
                parts += [f"--{name}", value]
        for group in self.options.group:
            parts += ["--group", group]
        return make_line(shlex.join(parts))

    async def ask(self, question: str) -> Outcome:
        """Send a question, and show its answer."""
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
        answer = Answer(self.client.public_url)
        outcome = await Turn(self.client, _make_display(answer, self.options), self.keyboard).play(request)
        # By this id the server adds the calls of an earlier answer, with their whole results.
        self.messages.append({"role": "assistant", "id": message_id, "content": answer.text})
        if self.options.files is not None:
            await self._save_files(answer, self.options.files)
        return outcome

    async def _save_files(self, answer: Answer, folder: Path) -> None:
        for file in answer.files:
            try:
                content = await read_file(file, self.client.fetch_file)
                if content is not None:
                    print(f"⇩ {make_line(str(save_file(file, content, folder)))}", file=sys.stderr)
            except (ServerProblem, OSError, ValueError) as problem:
                print(f"callboard: {describe_file(file)} is not saved: {make_line(str(problem))}", file=sys.stderr)


def _read_user(options: argparse.Namespace) -> User | None:
    """Return the user of the options; None if they name none, which also rules out a role and groups."""
    if options.user:
        try:
            return User(id=options.user, role=options.role or "user", groups=tuple(options.group))
        except ValidationError:
            raise CallboardError("--user: an id has up to 255 characters, and no control characters") from None
    if options.role or options.group:
        raise CallboardError("--role and --group need a user: add --user ID")
    return None


async def _find_server(url: str | None, settings: Settings) -> Address | None:
    """Return the given address, or the settings' own; None if no server runs at the latter."""
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    user_secret = settings.open_webui_jwt_secret.get_secret_value() if settings.open_webui_jwt_secret else ""
    if url:
        return Address(url.strip(), key, user_secret=user_secret)
    own = settings.own_url
    if not own or await ask_health(own, CONNECT_SECONDS) is None:
        return None
    return Address(own, key, user_secret=user_secret)


def to_messages(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return stored messages in the form of a request: each answer is its text, with the id that its calls have."""
    messages: list[dict[str, Any]] = []
    for message_id, group in groupby(rows, key=lambda row: row["message_id"]):
        turn = list(group)
        messages += [{"role": "user", "content": row["content"]} for row in turn if row["role"] == "user"]
        texts = [row["content"] for row in turn if row["role"] == "assistant" and row["content"]]
        answer: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(text.strip() for text in texts)}
        messages.append({**answer, "id": message_id} if message_id else answer)
    return messages


async def _answer_once(chat: _Chat) -> int:
    outcome = await chat.ask(" ".join(chat.options.question) or _read_question())
    if not chat.options.json:
        print(f"Go on with: {chat.command}", file=sys.stderr)
    return EXIT_CODES[outcome]


def _read_question() -> str:
    if sys.stdin.isatty():
        raise CallboardError("there is no question: give it as an argument, or on standard input")
    question = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if not question:
        raise CallboardError("there is no question: standard input is empty")
    return question


async def _converse(chat: _Chat, agent: ListedAgent) -> int:
    from rich.text import Text

    from callboard._cli.chat.drawn import make_console
    from callboard._cli.chat.keyboard import Keyboard

    out = sys.stdout if sys.stdout.isatty() else sys.stderr
    console = make_console(out)
    keyboard = chat.keyboard or Keyboard(out)

    def say(words: str) -> None:
        console.print(Text(words, "dim"), soft_wrap=True)

    earlier = sum(message["role"] == "user" for message in chat.messages)
    questions = "1 question" if earlier == 1 else f"{earlier} questions"
    say(f"{make_line(agent.agent_id)}: {make_line(agent.description)}")
    say(f"The chat {f'goes on after {questions}' if earlier else 'is new'}; later: {chat.command}")
    say("Ctrl-C stops an answer, Ctrl-D ends; /help says more.")
    while True:
        say("")
        line = await keyboard.read_line(PROMPT)
        if line is None or line.strip() == "/quit":
            return 0
        if line.strip() == "/help":
            say(HELP)
        elif line.strip() and await chat.ask(line) == "left":
            return INTERRUPTED


def _make_display(answer: Answer, options: argparse.Namespace) -> Display:
    if options.json:
        return JsonLines(answer)
    if not _can_draw():
        return Plain(answer, is_verbose=options.verbose)
    from callboard._cli.chat.drawn import Drawn, make_console

    return Drawn(answer, make_console(sys.stdout), is_verbose=options.verbose)


def _can_draw() -> bool:
    """Return whether standard output is a terminal with cursor movements."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _find_keyboard(options: argparse.Namespace) -> "Keyboard | None":
    """Return the keyboard; None if a question could not be seen or not be answered."""
    out = sys.stdout if _can_draw() else sys.stderr
    if options.json or not out.isatty() or not sys.stdin.isatty():
        return None
    from callboard._cli.chat.keyboard import Keyboard

    return Keyboard(out)
