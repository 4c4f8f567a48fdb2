"""`callboard chat`: a conversation with an agent in a terminal, or one answer for a script.

It is a client of the server's routes, like the pipe. If no server runs, it starts a server in this process.
"""

import argparse
import asyncio
import json
import mimetypes
import os
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import count, groupby
from pathlib import Path, PurePosixPath
from typing import Any, TextIO
from uuid import uuid4

from pydantic import ValidationError
from rich.text import Text

from callboard._cli.chat.client import CONNECT_SECONDS, ServerClient, ServerProblem, open_client
from callboard._cli.chat.display import SERVER_FILE, Display, Mode, describe_file, make_console
from callboard._cli.chat.keyboard import Keyboard
from callboard._cli.chat.turn import Turn
from callboard._cli.chat.visible import make_line, make_visible
from callboard._cli.health import ask_health
from callboard.data_urls import content_type_of, read_data_url
from callboard.errors import CallboardError
from callboard.settings import Settings, load_settings
from callboard_protocol import RunRequest, User

PROMPT = "› "
MAX_NAME_CHARS = 50

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
        if options.approve or options.deny:
            return await _answer_approval(client, options.approve or options.deny, is_approved=bool(options.approve))
        if options.approvals:
            return await _list_approvals(client)
        agents = await client.list_agents()
        lines = "\n".join(f"{make_line(agent_id)}: {make_line(about)}" for agent_id, about in agents.items())
        if options.agent is None:
            print(lines)
            return 0
        if options.agent not in agents:
            raise CallboardError(f"there is no agent {make_line(options.agent)!r}; the agents are\n{lines}")
        chat = _Chat(client, options, user, server_url="" if socket else client.url)
        if options.chat:
            chat.messages = to_messages(await client.load_chat(options.chat))
        if options.question or not chat.keyboard:
            return await _answer_once(chat)
        return await _converse(chat, chat.keyboard, f"{make_line(options.agent)}: {make_line(agents[options.agent])}")


async def _list_approvals(client: ServerClient) -> int:
    waiting = await client.list_approvals()
    for approval in waiting:
        arguments = approval["arguments"]
        with suppress(ValueError):
            # Without JSON's escapes, because a model could hide text in escapes.
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
        since = datetime.fromtimestamp(approval["waiting_since"], UTC)
        about = f"agent {approval['agent_id']}, chat {approval['chat_id']}, since {since:%Y-%m-%d %H:%M} UTC"
        print(f"{make_line(_identify_approval(approval))}  {make_line(approval['tool_name'])}")
        print(f"{make_visible(arguments)}\n{make_line(about)}\n")
    if not waiting:
        print("No call waits for approval.")
    return 0


async def _answer_approval(client: ServerClient, wanted: str, *, is_approved: bool) -> int:
    """Answer a call that waits for approval. The server continues its run, and the command does not wait for it."""
    for approval in await client.list_approvals():
        if _identify_approval(approval) == wanted:
            await client.answer(approval["run_id"], approval["request_id"], is_approved)
            words = "Approved" if is_approved else "Refused"
            print(f"{words}: {make_line(approval['tool_name'])}. Its run continues.")
            return 0
    raise CallboardError(f"no call {make_line(wanted)!r} waits for approval; callboard chat --approvals lists them")


def _identify_approval(approval: Mapping[str, Any]) -> str:
    return f"{approval['run_id']}:{approval['tool_call_id']}"


class _Chat:
    """A conversation and its messages so far, in the form of requests.

    `keyboard` is None if the user cannot be asked questions.
    """

    def __init__(self, client: ServerClient, options: argparse.Namespace, user: User | None, server_url: str) -> None:
        self.options = options
        self.chat_id = options.chat or secrets.token_hex(8)
        self.messages: list[dict[str, Any]] = []
        is_drawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._mode: Mode = "json" if options.json else "drawn" if is_drawn else "plain"
        out = sys.stdout if self._mode == "drawn" else sys.stderr
        self.console = make_console(out)
        self.keyboard = Keyboard(out) if not options.json and _can_ask(out) else None
        self._client = client
        self._user = user
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
                "user": self._user,
                "messages": self.messages,
                "run_id": run_id,
            }
        )
        display = Display(self.console, self._mode, self._server_url, is_verbose=self.options.verbose)
        exit_code = await Turn(self._client, display, self.keyboard, request, run_id).run()
        # From this id, the server finds the calls of the answer in later turns.
        self.messages.append({"role": "assistant", "id": message_id, "content": display.text})
        if self.options.files is not None:
            for file in display.files:
                await self._save_file(file, self.options.files)
        return exit_code

    async def _save_file(self, file: Mapping[str, Any], folder: Path) -> None:
        """Save a file if it is on the server or in a data URL."""
        url = str(file.get("url") or "")
        try:
            if SERVER_FILE.fullmatch(url):
                content = await self._client.fetch_file(url)
            elif url.startswith("data:"):
                content = read_data_url(url).content
            else:
                return
            print(f"⇩ {make_line(str(save_file(file, content, folder)))}", file=sys.stderr)
        except (ServerProblem, OSError, ValueError) as problem:
            print(f"callboard: {describe_file(file, '')} was not saved: {make_line(str(problem))}", file=sys.stderr)


def _can_ask(out: TextIO) -> bool:
    """Return whether the user can see and answer questions. The system stops a background process that reads input."""
    return out.isatty() and sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def save_file(file: Mapping[str, Any], content: bytes, folder: Path) -> Path:
    """Write a file into a folder under an unused name, which has no folder, and return its path. Raises `OSError`."""
    given = make_line(str(file.get("name") or "")).replace("\\", "/")
    name = Path(PurePosixPath(given).name.lstrip(".") or "file")
    kind = str(file.get("content_type") or content_type_of(str(file.get("url"))) or "")
    stem = name.stem[:MAX_NAME_CHARS]
    suffix = (name.suffix or mimetypes.guess_extension(kind) or "")[:MAX_NAME_CHARS]
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = folder / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            # The mode "x" neither overwrites a file nor follows a link of that name.
            with path.open("xb") as new:
                new.write(content)
        except FileExistsError:
            continue
        break
    return path


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


async def _converse(chat: _Chat, keyboard: Keyboard, about_agent: str) -> int:
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
