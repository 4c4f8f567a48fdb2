"""One turn of the chat: shows the events of a run, asks its questions, and stops it on Ctrl-C."""

import asyncio
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from callboard._cli.chat.answer import LOST_CODE
from callboard._cli.chat.client import ServerClient, ServerProblem
from callboard._cli.chat.displays import RECONNECTING, Display
from callboard._cli.chat.visible import make_line, make_visible
from callboard_protocol import Done, Error, Event, InputRequest, RunRequest

if TYPE_CHECKING:
    from callboard._cli.chat.keyboard import Keyboard

TICK_SECONDS = 0.1

STOPPING = "Stopping… Press Ctrl-C again to leave at once."
LEFT = "Left. It is unknown whether the run has stopped."
CANNOT_ASK = "No question can be asked here, so the agent continues without an answer."
NOT_ACCEPTED = "The server did not accept the answer: it is too late, or the question was answered elsewhere."
WITHDRAWN = "  The question is withdrawn."

Outcome = Literal["answered", "failed", "stopped", "left"]
"""`stopped`: Ctrl-C ended the run; `left`: a second Ctrl-C ended the command before the run had ended."""


class Interrupted(Exception):
    """The user pressed Ctrl-C at a question."""


class Turn:
    """Shows one run; `keyboard` is None if questions cannot be asked."""

    def __init__(self, client: ServerClient, display: Display, keyboard: "Keyboard | None") -> None:
        self._client = client
        self._display = display
        self._keyboard = keyboard
        self._run_id = ""
        self._asking = asyncio.Lock()
        self._questions: dict[str, tuple[InputRequest, asyncio.Task[None]]] = {}
        self._stop: asyncio.Task[None] | None = None
        self._is_left = False

    async def play(self, request: RunRequest) -> Outcome:
        """Start the run of the request, and show it until it ends."""
        self._run_id = request.run_id or ""
        loop = asyncio.get_running_loop()
        reader = asyncio.create_task(self._client.run(request, self._take, self._show_reconnecting))
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            with self._keyboard.quiet() if self._keyboard else nullcontext():
                while not reader.done() and not self._is_left:
                    self._display.tick()
                    await asyncio.wait({reader}, timeout=TICK_SECONDS)
                await _cancel(*(asking for _, asking in self._questions.values()))
                self._finish(reader)
                self._display.end()
        finally:
            self._display.close()
            loop.remove_signal_handler(signal.SIGINT)
            await _cancel(reader, *([self._stop] if self._stop else []))
        return self._find_outcome()

    def _finish(self, reader: asyncio.Task[None]) -> None:
        """End the answer with an error if its last event was not received."""
        problem = reader.exception() if reader.done() else ServerProblem(LEFT)
        if isinstance(problem, ServerProblem):
            self._display.answer.apply(Error(message=str(problem), code=LOST_CODE))
        elif problem:
            raise problem

    def _find_outcome(self) -> Outcome:
        if self._stop:
            return "left" if self._is_left else "stopped"
        ending = self._display.answer.ending
        return "answered" if isinstance(ending, Done) and ending.finish_reason == "stop" else "failed"

    def _take(self, data: str, event: Event | None) -> None:
        self._display.take(data, event)
        if isinstance(event, InputRequest) and event.request_id not in self._questions:
            # After a takeover the new server repeats questions that are still open.
            self._questions[event.request_id] = (event, asyncio.create_task(self._ask(event)))
        for question, asking in self._questions.values():
            if not self._display.answer.is_open(question):
                asking.cancel()

    def _show_reconnecting(self) -> None:
        if not self._stop:
            self._display.show_state(RECONNECTING)

    def _interrupt(self) -> None:
        if self._stop:
            self._is_left = True
            return
        self._display.show_state(STOPPING)
        self._stop = asyncio.create_task(self._cancel_run())

    async def _cancel_run(self) -> None:
        try:
            await self._client.cancel(self._run_id)
        except ServerProblem as problem:
            self._display.say(make_line(str(problem)))

    async def _ask(self, question: InputRequest) -> None:
        """Ask the user, after earlier questions, and send the answer to the server."""
        value: bool | str | None = None
        try:
            async with asyncio.timeout(question.timeout_seconds), self._asking:
                if not self._keyboard:
                    self._display.say(CANNOT_ASK)
                elif self._display.answer.is_open(question):
                    value = await self._ask_with(self._keyboard, question)
        except TimeoutError:
            pass
        except Interrupted:
            # Stopping the run also ends the question.
            self._interrupt()
            return
        try:
            await self._client.answer(self._run_id, question.request_id, value, asked=self._keyboard is not None)
        except ServerProblem:
            self._display.say(NOT_ACCEPTED)

    async def _ask_with(self, keyboard: "Keyboard", question: InputRequest) -> bool | str | None:
        with self._display.paused():
            self._display.say(f"\n? {make_line(question.title)}")
            for line in f"{make_visible(question.message)}\n{make_line(question.placeholder)}".splitlines():
                if line.strip():
                    self._display.say(f"  {line}")
            try:
                return await keyboard.ask(question)
            except asyncio.CancelledError:
                self._display.say(WITHDRAWN)
                raise


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
