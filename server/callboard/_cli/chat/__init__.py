"""`callboard chat`: a conversation with an agent in a terminal, or one answer for a script.

It is a client of the server's routes, like the pipe. If no server runs, it starts a server in this process.
"""

import argparse
import asyncio
import os
import secrets
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from uuid import uuid4

from pydantic import ValidationError
from rich.text import Text

from callboard._cli.chat.answer import Answer
from callboard._cli.chat.approvals import answer_approvals
from callboard._cli.chat.client import CONNECT_SECONDS, ServerClient, ServerProblem, open_client
from callboard._cli.chat.display import Display, JsonLines, make_console
from callboard._cli.chat.files import describe_file, read_file, save_file
from callboard._cli.chat.turn import Turn
from callboard._cli.chat.visible import make_line
from callboard._cli.health import ask_health
from callboard.errors import CallboardError
from callboard.settings import Settings, load_settings
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


def run(options: argparse.Namespace) -> int:
    """Talk to the agent. After a single question, the exit code is 0 only if the question was answered."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Some terminals cannot print every character.
            stream.reconfigure(errors="backslashreplace")
    settings = load_settings()
    user = _read_user(options)
    url, socket = options.url, None
    with ExitStack() as closing:
        if not url and settings.own_url and asyncio.run(ask_health(settings.own_url, CONNECT_SECONDS)):
            url = settings.own_url
        if not url:
            # Imported only if needed, because it imports agents, a database and a web server.
            from callboard._cli.chat.own_server import serve_agents

            url, socket = "http://localhost", closing.enter_context(serve_agents(settings))
        return asyncio.run(_run_chat(settings, url, socket, user, options))


def _read_user(options: argparse.Namespace) -> User | None:
    """Return the user that the options name; None without a user. A role or groups without a user are an error."""
    if options.user:
        try:
            return User(id=options.user, role=options.role or "user", groups=tuple(options.group))
        except ValidationError:
            raise CallboardError("--user: an id has up to 255 characters, and no control characters") from None
    if options.role or options.group:
        raise CallboardError("--role and --group need a user: add --user ID")
    return None


async def _run_chat(
    settings: Settings, url: str, socket: Path | None, user: User | None, options: argparse.Namespace
) -> int:
    async with open_client(settings, url, socket, user) as client:
        if options.approvals or options.approve or options.deny:
            return await answer_approvals(client, options)
        agents = await client.list_agents()
        lines = "\n".join(f"{make_line(agent_id)}: {make_line(about)}" for agent_id, about in agents.items())
        if options.agent is None:
            print(lines)
            return 0
        if options.agent not in agents:
            raise CallboardError(f"there is no agent {make_line(options.agent)!r}; the agents are\n{lines}")
        chat = _Chat(client, options, server_url="" if socket else client.url)
        if options.chat:
            chat.messages = to_messages(await client.load_chat(options.chat))
        if options.question or not chat.keyboard:
            return await _answer_once(chat)
        return await _converse(chat, chat.keyboard, f"{make_line(options.agent)}: {make_line(agents[options.agent])}")


class _Chat:
    """A conversation and its messages so far, in the form of requests.

    `keyboard` is None if the user cannot be asked questions.
    """

    def __init__(self, client: ServerClient, options: argparse.Namespace, server_url: str) -> None:
        self.options = options
        self.chat_id = options.chat or secrets.token_hex(8)
        self.messages: list[dict[str, Any]] = []
        self.is_drawn = not options.json and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        out = sys.stdout if self.is_drawn else sys.stderr
        self.console = make_console(out)
        self.keyboard = None if options.json else _open_keyboard(out)
        self._client = client
        self._server_url = server_url

    @property
    def command(self) -> str:
        """The command that continues this chat."""
        parts = ["callboard", "chat", self.options.agent, "--chat", self.chat_id]
        for name in ("url", "user", "role"):
            if value := getattr(self.options, name):
                parts += [f"--{name}", value]
        for group in self.options.group:
            parts += ["--group", group]
        return make_line(shlex.join(parts))

    async def ask(self, question: str) -> int:
        """Send a question and show its answer. Return the command's exit code."""
        message_id, run_id = uuid4().hex, uuid4().hex
        self.messages.append({"role": "user", "content": question})
        request = RunRequest.model_validate(
            {
                "agent": self.options.agent,
                "chat_id": self.chat_id,
                "message_id": message_id,
                "user": self._client.user,
                "messages": self.messages,
                "run_id": run_id,
            }
        )
        display = (JsonLines if self.options.json else Display)(
            self.console, self._server_url, is_drawn=self.is_drawn, is_verbose=self.options.verbose
        )
        exit_code = await Turn(self._client, display, self.keyboard, run_id).run(request)
        answer = display.answer
        # From this id, the server finds the calls of the answer in later turns.
        self.messages.append({"role": "assistant", "id": message_id, "content": answer.text})
        if self.options.files is not None:
            await self._save_files(answer, self.options.files)
        return exit_code

    async def _save_files(self, answer: Answer, folder: Path) -> None:
        for file in answer.files:
            try:
                content = await read_file(file, self._client.fetch_file)
                if content is not None:
                    print(f"⇩ {make_line(str(save_file(file, content, folder)))}", file=sys.stderr)
            except (ServerProblem, OSError, ValueError) as problem:
                print(f"callboard: {describe_file(file, '')} was not saved: {make_line(str(problem))}", file=sys.stderr)


def _open_keyboard(out: TextIO) -> "Keyboard | None":
    """Return the keyboard; None if the user cannot see or cannot answer questions."""
    if not out.isatty() or not sys.stdin.isatty():
        return None
    # Imported only if needed, because the import takes long.
    from callboard._cli.chat.keyboard import Keyboard

    return Keyboard(out)


def to_messages(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return stored messages in the form of a request.

    Each answer becomes one message with its text and its message id, from which the server finds its calls.
    """
    messages: list[dict[str, Any]] = []
    for message_id, group in groupby(rows, key=lambda row: row["message_id"]):
        turn = list(group)
        messages += [{"role": "user", "content": row["content"]} for row in turn if row["role"] == "user"]
        texts = [row["content"] for row in turn if row["role"] == "assistant" and row["content"]]
        answer: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(text.strip() for text in texts)}
        messages.append({**answer, "id": message_id} if message_id else answer)
    return messages


async def _answer_once(chat: _Chat) -> int:
    question = " ".join(chat.options.question)
    if not question and sys.stdin.isatty():
        raise CallboardError("there is no question: give it as an argument, or on standard input")
    question = question or sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if not question:
        raise CallboardError("there is no question: standard input is empty")
    exit_code = await chat.ask(question)
    if not chat.options.json:
        print(f"To continue this chat: {chat.command}", file=sys.stderr)
    return exit_code


async def _converse(chat: _Chat, keyboard: "Keyboard", about_agent: str) -> int:
    def say(words: str) -> None:
        chat.console.print(Text(words, "dim"), soft_wrap=True)

    earlier = sum(message["role"] == "user" for message in chat.messages)
    say(about_agent)
    say(f"Earlier questions: {earlier}.")
    say(f"To continue this chat: {chat.command}")
    say("Ctrl-C stops an answer, Ctrl-D ends the conversation, /help lists the keys.")
    while True:
        say("")
        try:
            line = await keyboard.read_line(PROMPT)
        except EOFError:
            return 0
        match line.strip():
            case "/quit":
                return 0
            case "/help":
                say(HELP)
            case "":
                pass
            case _:
                await chat.ask(line)
