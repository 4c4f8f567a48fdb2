"""`callboard chat`: asks an agent of a running server, and shows the answer in the terminal.

No text of the server is trusted, because models, tools and pages write it. It reaches the terminal only through
`make_visible` or `make_line`, and as a `Text`, in which Rich reads no markup.
"""

import argparse
import asyncio
import json
import re
import secrets
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from io import TextIOWrapper
from itertools import groupby
from textwrap import indent
from typing import Any, Literal
from urllib.parse import quote
from uuid import uuid4

import httpx
import regex
from prompt_toolkit import PromptSession
from prompt_toolkit.input.typeahead import clear_typeahead, get_typeahead, store_typeahead
from prompt_toolkit.utils import is_dumb_terminal
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from callboard._cli import INTERRUPTED
from callboard.calls import EndedCall, RunningCall, follow_call
from callboard.calls.approval import ALWAYS
from callboard.calls.forms import show_default
from callboard.errors import CallboardError
from callboard.openwebui.signed_users import HEADER, sign_user
from callboard.settings import Settings, is_loopback, load_settings
from callboard_protocol import (
    Decoder,
    Done,
    Error,
    Event,
    FrameError,
    InputAnswer,
    InputRequest,
    Message,
    Plan,
    Reasoning,
    Rewind,
    RunRequest,
    Source,
    Status,
    UnreadMessage,
    User,
    UserMessage,
    decode,
)

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
"""The server sends a ping every 15 s. After four missed pings the connection counts as lost."""

PLAIN_CELLS = 120
"""The maximum length of a line about a call if the output is not a terminal."""

CANNOT_REACH = "Cannot reach a Callboard server at {url}: start `callboard serve`, or give the address with --url."
NOT_CALLBOARD = "The server at {url} is not a Callboard server."
LOST = "The connection to the server was lost, and with it the rest of the answer: ask again when the server is there."
TAKEN_BACK = "The answer starts again. Ignore the text above that follows the last tool call."
PROMPTS = {"confirmation": "  Yes or no? [y/N] ", "input": "  > ", "password": "  (not shown) > "}
APPROVAL_PROMPT = "  Yes, no, or what to do instead? [y/N] "
SAY_PROMPT = "› "
ALWAYS_PROMPT = "  Yes, no, always in this chat, or what to do instead? [y/N/a] "

# Except line feeds, tabs, and two zero-width characters that some scripts and emoji need.
_CONTROLS = regex.compile(r"[[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]--[\n\t\u200c\u200d]]", regex.VERSION1)


def make_visible(text: str) -> str:
    """Return the text with a sign such as `<U+001B>` for each character that controls a terminal.

    Line feeds and tabs stay. Carriage returns are left out, because most of them are a part of a line end.
    """
    return str(_CONTROLS.sub(lambda found: f"<U+{ord(found[0]):04X}>", text.replace("\r", "")))


def make_line(text: str) -> str:
    """Return the result of `make_visible` as one line, with one space between words."""
    return " ".join(make_visible(text).split())


def run(options: argparse.Namespace) -> int:
    """Talk to the agent. After a single question, the exit code is 0 only if the question was answered."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Some terminals cannot print every character.
            stream.reconfigure(errors="backslashreplace")
    return asyncio.run(_run_chat(load_settings(), options))


async def _run_chat(settings: Settings, options: argparse.Namespace) -> int:
    user = _read_user(options)
    client = _Client(settings, options.url or settings.own_url or "", user)
    async with client.http:
        listed = await client.fetch_list("/v1/models", "data")
        agents = {str(entry.get("id")): str(entry.get("description") or "") for entry in listed}
        lines = "\n".join(f"{make_line(agent_id)}: {make_line(about)}" for agent_id, about in agents.items())
        if options.agent is None:
            print(lines)
            return 0
        if options.agent not in agents:
            raise CallboardError(f"there is no agent {make_line(options.agent)!r}; the agents are\n{lines}")
        chat = _Chat(client, options, user)
        if options.chat:
            path = f"/v1/chats/{quote(options.chat, safe='')}/messages"
            try:
                chat.messages = to_messages(await client.fetch_list(path, "messages"))
            except ServerProblem as problem:
                if problem.code != "unknown_chat":
                    raise
        print(f"To continue this chat, add --chat {make_line(chat.id)}", file=sys.stderr)
        question = " ".join(options.question)
        if question or not sys.stdin.isatty():
            if not (question := question or sys.stdin.buffer.read().decode("utf-8", "replace").strip()):
                raise CallboardError("there is no question: standard input is empty")
            return await chat.ask(question)
        print("A line that you type reaches a running answer. Ctrl-C stops it, Ctrl-D ends the chat.", file=sys.stderr)
        session: PromptSession[str] = PromptSession()
        with suppress(EOFError):
            while True:
                if line := (await session.prompt_async(SAY_PROMPT, handle_sigint=False)).strip():
                    await chat.ask(line)
        return 0


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


def to_messages(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return stored messages in the form of a request.

    Each answer becomes one message with its text and its message id, from which the server finds its calls, and what
    the user said between them.
    """
    messages: list[dict[str, Any]] = []
    for _, group in groupby(rows, key=lambda row: row["run_id"]):
        turn = list(group)
        message_id = turn[0]["message_id"]
        messages += [{"role": "user", "content": row["content"]} for row in turn[:1] if row["role"] == "user"]
        texts = [row["content"] for row in turn if row["role"] == "assistant" and row["content"]]
        answer: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(text.strip() for text in texts)}
        messages.append({**answer, "id": message_id} if message_id else answer)
    return messages


class _Chat:
    """A conversation and its messages so far, in the form of requests."""

    def __init__(self, client: "_Client", options: argparse.Namespace, user: User | None) -> None:
        self.id: str = options.chat or secrets.token_hex(8)
        self.messages: list[dict[str, Any]] = []
        self._client = client
        self._fields = {"agent": options.agent, "user": user, "chat_id": self.id}

    async def ask(self, question: str) -> int:
        """Send a question and show its answer. Return the command's exit code.

        Lines that the user typed meanwhile and the run has not read are the next question.
        """
        self.messages.append({"role": "user", "content": question})
        ids = {"message_id": uuid4().hex, "run_id": uuid4().hex}
        request = RunRequest.model_validate({**self._fields, **ids, "messages": self.messages})
        answer = _ShownRun(self._client, request)
        exit_code = await answer.show()
        # From this id, the server finds the calls of the answer in later turns.
        self.messages.append({"role": "assistant", "id": ids["message_id"], "content": answer.text})
        unread = "\n".join(answer.unread)
        return await self.ask(unread) if unread else exit_code


class _ShownRun:
    """Shows one run, asks its questions, and stops it on Ctrl-C.

    The text of the answer is printed on standard output, in a terminal at once, elsewhere at the end. Everything else
    is printed on standard error.
    """

    def __init__(self, client: "_Client", request: RunRequest) -> None:
        self._client = client
        self._request = request
        self._is_terminal = sys.stdout.isatty()
        # Prompt Toolkit writes its prompts to standard output.
        self._can_ask = self._is_terminal and sys.stdin.isatty()
        if self._can_ask:
            self._session: PromptSession[str] = PromptSession()
        options: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True}
        self._out = Console(file=sys.stdout, **options)
        self._beside = Console(file=sys.stderr, width=None if sys.stderr.isatty() else PLAIN_CELLS, **options)
        self._events: asyncio.Queue[Event | Literal["keys"] | None] = asyncio.Queue()
        self.unread: list[str] = []
        """The lines that the user has typed and the run has not read, in order."""
        self._refused: list[str] = []
        """The lines that the server has not accepted."""
        self._calls: dict[str, RunningCall | EndedCall] = {}
        # The texts before, between and after the calls. A rewind can remove the last one.
        self._texts = [""]
        self._style = ""
        self._is_in_line = False
        self._stop: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """The text of the answer, without thoughts."""
        return "\n\n".join(text.strip() for text in self._texts if text.strip())

    async def show(self) -> int:
        """Start the run, and show it until it ends. Return the command's exit code."""
        loop = asyncio.get_running_loop()
        showing = asyncio.current_task()
        assert showing
        loop.add_signal_handler(signal.SIGINT, lambda: showing.cancel() if self._stop else self._interrupt())
        reader = asyncio.create_task(self._read())
        ending: Event | None = None
        try:
            with self._noticing_keys():
                ending = await self._show_events()
            await reader
            self.unread += self._refused
        except ServerProblem as problem:
            self._say(f"✗ {problem}", "red")
        except asyncio.CancelledError:
            # By Ctrl-C. If the signal raised this, it could do so anywhere, also in the request of another task.
            raise KeyboardInterrupt from None
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            for task in filter(None, (reader, self._stop)):
                task.cancel()
        self._break_line()
        if not self._is_terminal and self.text:
            print(make_visible(self.text))
        for line in self.unread:
            self._say(f"{SAY_PROMPT}{line}")
        if self._stop:
            return INTERRUPTED
        return int(not (isinstance(ending, Done) and ending.finish_reason == "stop"))

    async def _show_events(self) -> Event | None:
        """Show the run until its events end, and return the last one."""
        last: Event | None = None
        while (event := await self._events.get()) is not None:
            if event == "keys":
                await self._send_lines()
                continue
            last = event
            if not isinstance(event, InputRequest):
                self._show_event(event)
            elif not self._stop:
                await self._ask(event)
        return last

    async def _read(self) -> None:
        """Read the run's events, even while a question is shown, because the server ends a run that no client reads."""
        try:
            async for event in self._client.run(self._request):
                self._events.put_nowait(event)
        finally:
            self._events.put_nowait(None)

    @contextmanager
    def _noticing_keys(self) -> Iterator[None]:
        """Notice when the user begins to type. What they type appears at the prompt that opens then."""
        if not self._can_ask:
            yield
            return
        terminal = self._session.input
        file = terminal.fileno()

        def keep_keys() -> None:
            store_typeahead(terminal, terminal.read_keys())
            self._events.put_nowait("keys")

        before = termios.tcgetattr(file)
        tty.setcbreak(file, termios.TCSANOW)
        try:
            with terminal.attach(keep_keys):
                yield
        finally:
            termios.tcsetattr(file, termios.TCSANOW, before)

    async def _send_lines(self) -> None:
        """Let the user end the line that they have begun, and send it to the run."""
        while not self._stop and (keys := get_typeahead(self._session.input)):
            store_typeahead(self._session.input, keys)
            self._break_line()
            try:
                if line := (await self._session.prompt_async(SAY_PROMPT, handle_sigint=False)).strip():
                    await self._client.post(f"/v1/runs/{self._request.run_id}/messages", {"content": line})
            except EOFError:
                pass
            except KeyboardInterrupt:
                self._interrupt()
            except ServerProblem as problem:
                self._refused.append(line)
                if problem.code != "run_ending":
                    self._say(f"The server did not accept this: {problem}")

    def _interrupt(self) -> None:
        """Stop the run. The next Ctrl-C ends the command."""
        self._say("Stopping… Press Ctrl-C again to leave at once.")
        self._stop = asyncio.create_task(self._post("cancel"))

    async def _post(self, action: str, body: object = None) -> None:
        try:
            await self._client.post(f"/v1/runs/{self._request.run_id}/{action}", body)
        except ServerProblem as problem:
            self._say(f"The server did not accept this: {problem}")

    async def _ask(self, question: InputRequest) -> None:
        """Ask the user, and send the answer to the server."""
        value: bool | str | dict[str, str] | None = None
        for line in describe_event(question):
            self._say(line)
        if self._can_ask:
            try:
                async with asyncio.timeout(question.timeout_seconds):
                    value = await _read_answer(question)
            except (TimeoutError, EOFError):
                # The user gives no answer.
                pass
            except KeyboardInterrupt:
                # Stopping the run also ends the question.
                self._interrupt()
                return
        else:
            self._say("No question can be asked here, so the agent continues without an answer.")
        answer = InputAnswer(request_id=question.request_id, value=value, asked=self._can_ask)
        await self._post("input", answer.model_dump(mode="json"))

    def _show_event(self, event: Event) -> None:
        if call := follow_call(self._calls, event):
            self._texts.append("")
            self._show_call(call)
        match event:
            case Message():
                self._texts[-1] += event.content
                self._stream(event.content)
            case Reasoning():
                self._stream(event.content, "dim")
            case UserMessage():
                self._texts.append("")
                self._say(f"· The agent reads: {event.content}")
            case UnreadMessage():
                self.unread.append(event.content)
            case Rewind():
                if self._is_terminal and self._texts[-1].strip():
                    self._say(TAKEN_BACK, "yellow")
                self._texts[-1] = ""
            case _:
                for line in describe_event(event):
                    self._say(line)

    def _show_call(self, call: RunningCall | EndedCall) -> None:
        """Print a line, which is cut at the width of the terminal, and a line for each file."""
        if isinstance(call, RunningCall):
            sign, style, words = "→", "dim", call.arguments_text
        else:
            sign, style = ("✗", "red") if call.is_failed else ("–", "dim") if call.error_code else ("✓", "green")
            took = f"{call.duration_ms / 1000:.1f} s " if call.duration_ms is not None and call.has_run else ""
            words = f"{took}{call.display_text}"
        line = Text.assemble((f"{sign} ", style), (make_line(call.name), "bold"), (f"  {make_line(words)}", "dim"))
        self._break_line()
        self._beside.print(line, no_wrap=True, overflow="ellipsis", soft_wrap=False)
        for file in call.files if isinstance(call, EndedCall) else ():
            url = str(file.get("url") or "")
            place = "" if url.startswith("data:") else f"{self._client.url}{url}" if url.startswith("/") else url
            self._say(f"  ⇩ {file.get('name') or 'file'}  {place}", "cyan")

    def _say(self, text: str, style: str = "") -> None:
        """Print a text on lines of its own."""
        self._break_line()
        self._beside.print(Text(make_visible(text).rstrip(), style))

    def _stream(self, text: str, style: str = "") -> None:
        if self._is_terminal and text:
            if style != self._style:
                self._break_line()
            self._style = style
            self._out.print(Text(make_visible(text), style), end="")
            self._is_in_line = not text.endswith("\n")

    def _break_line(self) -> None:
        if self._is_in_line:
            self._out.print()
        self._is_in_line = False


async def _read_answer(question: InputRequest) -> bool | str | dict[str, str]:
    """Return the user's answer. A form's has a text for each field, which the server converts to a value."""
    is_password = question.kind == "password"
    if is_password and is_dumb_terminal():
        # Prompt Toolkit would show the password.
        raise EOFError
    # Not the session of the chat, because its history must not have answers and passwords.
    session: PromptSession[str] = PromptSession(is_password=is_password)
    # Characters typed before the question appeared are not an answer to it.
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    clear_typeahead(session.input)
    if question.kind == "form":
        answers = {}
        for name, field in question.form["properties"].items():
            prompt = describe_field(name, field, is_required=name in question.form["required"])
            default = make_line(show_default(field))
            answers[name] = await session.prompt_async(f"  {prompt} > ", default=default, handle_sigint=False)
        return answers
    prompt = PROMPTS[question.kind]
    is_approval = question.kind == "confirmation" and question.tool_call_id is not None and not question.url
    if is_approval:
        prompt = ALWAYS_PROMPT if question.remember else APPROVAL_PROMPT
    line = await session.prompt_async(prompt, handle_sigint=False)
    if question.kind != "confirmation":
        return line
    word = line.strip().lower()
    if question.remember and word in ("a", ALWAYS):
        return ALWAYS
    if not is_approval or word in ("y", "yes", "n", "no", ""):
        return word in ("y", "yes")
    return {"words": line.strip()}


def describe_event(event: Event) -> Iterator[str]:
    """Yield the lines of an event that is neither text nor a call. They are not safe to print yet."""
    match event:
        case Status():
            yield f"· {event.content}"
        case Plan():
            yield f"· {event.summary}"
        case Source():
            for about in event.metadata or ({},):
                url = about.get("source") or event.source.get("url") or ""
                yield f"[source{about.get('source_number', '')}] {about.get('name') or event.source.get('name')}  {url}"
        case InputRequest():
            yield f"? {make_line(event.title)}"
            choices = (f"{number}. {choice}" for number, choice in enumerate(event.choices, 1))
            for text in filter(None, (event.message, event.placeholder, event.url, *choices)):
                yield indent(text, "  ")
        case Error():
            yield f"✗ {event.message}"
        case Done() if event.finish_reason != "stop":
            yield f"· The answer has ended early: {event.finish_reason}."


def describe_field(name: str, field: Mapping[str, Any], *, is_required: bool) -> str:
    """Return a line with the title of a form's field, its description and its possible values."""
    listed = field.get("items", field)
    options = listed.get("oneOf") or listed.get("anyOf") or []
    values = ", ".join(f"{number} {option['title']}" for number, option in enumerate(options, 1))
    if not values:
        values = "yes or no" if field["type"] == "boolean" else field.get("format", "")
    hints = "; ".join(filter(None, (field.get("description"), "" if is_required else "optional", values)))
    title = field.get("title") or name
    return make_line(f"{title} ({hints})" if hints else title)


class ServerProblem(CallboardError):
    """A request failed. The message says what to do."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(make_line(message))
        self.code = code


class _Client:
    """Sends requests to one server, with the settings' key and a user. Every failure raises a `ServerProblem`.

    `url` is shown, without its password.
    """

    def __init__(self, settings: Settings, url: str, user: User | None) -> None:
        self.url = re.sub(r"//[^/@]*@", "//", url.rstrip("/"))
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise ServerProblem("CALLBOARD_API_KEY cannot be sent: use ASCII characters without spaces.")
        self._secret = settings.open_webui_jwt_secret
        self._user = user
        try:
            self.http = httpx.AsyncClient(
                base_url=url,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                params={"user_id": user.id} if user else None,
                timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
                # The proxy in the environment cannot reach this machine.
                trust_env=not is_loopback(httpx.URL(url).host),
            )
        except httpx.InvalidURL as error:
            raise ServerProblem(CANNOT_REACH.format(url=self.url)) from error

    async def fetch_list(self, path: str, name: str) -> list[dict[str, Any]]:
        """Return the list with this name in the server's JSON."""
        async with self._send("GET", path) as response:
            try:
                return [dict(entry) for entry in json.loads(await response.aread())[name]]
            except (ValueError, KeyError, TypeError) as error:
                raise ServerProblem(NOT_CALLBOARD.format(url=self.url)) from error

    async def post(self, path: str, body: object) -> None:
        """Send a request about a run."""
        async with self._send("POST", path, json=body):
            pass

    async def run(self, request: RunRequest) -> AsyncIterator[Event]:
        """Start a run, and yield its events, except those that this version cannot read."""
        decoder = Decoder()
        async with self._send("POST", "/v1/runs", json=request.model_dump(mode="json")) as response:
            async for chunk in response.aiter_bytes():
                for frame in decoder.feed(chunk):
                    with suppress(FrameError):
                        if event := decode(frame):
                            yield event
                            if isinstance(event, Done | Error):
                                return
        raise ServerProblem(LOST)

    @asynccontextmanager
    async def _send(self, method: str, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        """Yield a successful response, whose body is not read yet. Raise `ServerProblem` for any other response."""
        signed = {HEADER: sign_user(self._user, self._secret.get_secret_value())} if self._user and self._secret else {}
        problem = CANNOT_REACH.format(url=self.url)
        try:
            async with self.http.stream(method, path, headers=signed, **options) as response:
                if response.is_success:
                    problem = LOST
                    yield response
                    return
                body = await response.aread()
        except httpx.HTTPError as error:
            raise ServerProblem(problem) from error
        message, code = NOT_CALLBOARD.format(url=self.url), ""
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            refusal = json.loads(body)["error"]
            message, code = str(refusal["message"]), str(refusal.get("code"))
        raise ServerProblem(message, code)
