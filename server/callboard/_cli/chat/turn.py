"""One turn of the chat: shows the events of a run, asks its questions, and stops it on Ctrl-C."""

import asyncio
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING

from callboard._cli import INTERRUPTED
from callboard._cli.chat.client import ServerClient, ServerProblem
from callboard._cli.chat.display import Display
from callboard._cli.chat.visible import make_line, make_visible
from callboard_protocol import Done, Error, Event, InputRequest, RunRequest, Status, ToolCallError

if TYPE_CHECKING:
    from callboard._cli.chat.keyboard import Keyboard

TICK_SECONDS = 0.1

LOST_CODE = "connection_lost"
"""The error code of events that the client makes itself, if the rest of the answer cannot be read."""

RECONNECTING = "Reconnecting…"
STOPPING = "Stopping… Press Ctrl-C again to leave at once."
LEFT = "Left. It is unknown whether the run has stopped."
CANNOT_ASK = "No question can be asked here, so the agent continues without an answer."
NOT_ACCEPTED = "The server did not accept the answer: the question has timed out, or was answered elsewhere."


class Interrupted(Exception):
    """The user pressed Ctrl-C while a question was shown."""


class Turn:
    """Shows one run. `keyboard` is None if the user cannot be asked questions."""

    def __init__(self, client: ServerClient, display: Display, keyboard: "Keyboard | None", run_id: str) -> None:
        self._client = client
        self._display = display
        self._keyboard = keyboard
        self._run_id = run_id
        self._events: asyncio.Queue[tuple[str, Event | None] | None] = asyncio.Queue()
        self._asked: set[str] = set()
        self._stop: asyncio.Task[None] | None = None
        self._is_left = False

    async def run(self, request: RunRequest) -> int:
        """Start the run of the request, and show it until it ends. Return the command's exit code.

        Raises `KeyboardInterrupt` if a second Ctrl-C ends the command before the run has ended.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.create_task(self._read_events(request))
        shower = asyncio.create_task(self._show_events())
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        self._display.start()
        try:
            with self._keyboard.hide_typing() if self._keyboard else nullcontext():
                while not shower.done() and not self._is_left:
                    self._display.tick()
                    await asyncio.wait({shower}, timeout=TICK_SECONDS)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            tasks = [reader, shower, *([self._stop] if self._stop else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._display.stop()
        if self._is_left:
            self._display.say(LEFT)
            raise KeyboardInterrupt
        await shower
        try:
            await reader
        except ServerProblem as problem:
            self._show_failure(str(problem))
        self._display.end()
        ending = self._display.answer.ending
        is_answered = isinstance(ending, Done) and ending.finish_reason == "stop"
        return INTERRUPTED if self._stop else int(not is_answered)

    def _show_failure(self, message: str) -> None:
        """Show that the rest of the answer was not received."""
        for call in self._display.answer.running_calls:
            self._display.show(ToolCallError(tool_call_id=call.id, error="no result arrived", code=LOST_CODE))
        self._display.show(Error(message=message, code=LOST_CODE))

    async def _read_events(self, request: RunRequest) -> None:
        """Read the run's events, even while a question is shown, because the server ends a run that no client reads."""

        async def deliver(data: str, event: Event | None) -> None:
            self._events.put_nowait((data, event))

        try:
            await self._client.run(request, deliver, self._show_lost)
        finally:
            self._events.put_nowait(None)

    async def _show_events(self) -> None:
        while (received := await self._events.get()) is not None:
            data, event = received
            self._display.take(data, event)
            # After a takeover the new server repeats questions that are still open.
            if isinstance(event, InputRequest) and event.request_id not in self._asked and not self._stop:
                self._asked.add(event.request_id)
                await self._ask(event)

    def _show_lost(self) -> None:
        if not self._stop and self._display.answer.status != RECONNECTING:
            self._display.show(Status(content=RECONNECTING))

    def _interrupt(self) -> None:
        if self._stop:
            self._is_left = True
            return
        self._display.show(Status(content=STOPPING))
        self._stop = asyncio.create_task(self._cancel_run())

    async def _cancel_run(self) -> None:
        try:
            await self._client.cancel(self._run_id)
        except ServerProblem as problem:
            self._display.say(str(problem))

    async def _ask(self, question: InputRequest) -> None:
        """Ask the user, and send the answer to the server."""
        value: bool | str | dict[str, str] | None = None
        if self._keyboard:
            self._display.stop()
            try:
                value = await self._read_answer(self._keyboard, question)
            except Interrupted:
                # Stopping the run also ends the question.
                self._interrupt()
                return
            finally:
                self._display.start()
        else:
            self._display.say(CANNOT_ASK)
        try:
            await self._client.answer(self._run_id, question.request_id, value, asked=self._keyboard is not None)
        except ServerProblem:
            self._display.say(NOT_ACCEPTED)

    async def _read_answer(self, keyboard: "Keyboard", question: InputRequest) -> bool | str | dict[str, str] | None:
        """Show a question and return the user's answer; None after Ctrl-D or after the question's time limit."""
        self._display.say(f"? {make_line(question.title)}")
        texts = [make_visible(question.message), make_line(question.placeholder), make_line(question.url)]
        texts += [f"{number}. {make_line(choice)}" for number, choice in enumerate(question.choices, 1)]
        for line in "\n".join(texts).splitlines():
            if line.strip():
                self._display.say(f"  {line}")
        try:
            async with asyncio.timeout(question.timeout_seconds):
                return await keyboard.ask(question)
        except (TimeoutError, EOFError):
            return None
