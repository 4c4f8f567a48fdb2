"""One turn of the chat: shows the events of a run, asks its questions, and stops it on Ctrl-C."""

import asyncio
import signal
from contextlib import nullcontext

from callboard._cli import INTERRUPTED
from callboard._cli.chat.client import ServerClient, ServerProblem
from callboard._cli.chat.display import Display
from callboard._cli.chat.keyboard import Keyboard
from callboard._cli.chat.visible import make_line, make_visible
from callboard_protocol import Done, Error, Event, InputRequest, RunRequest, ToolCallError

REFRESH_SECONDS = 0.1

LOST_CODE = "connection_lost"
"""The error code of events that the client makes itself, if the rest of the answer cannot be read."""

STOPPING = "Stopping… Press Ctrl-C again to leave at once."
LEFT = "Left. It is unknown whether the run has stopped."
CANNOT_ASK = "No question can be asked here, so the agent continues without an answer."
NOT_ACCEPTED = "The server did not accept the answer: the question has timed out, or was answered elsewhere."


class Turn:
    """Shows one run. `keyboard` is None if the user cannot be asked questions."""

    def __init__(
        self, client: ServerClient, display: Display, keyboard: Keyboard | None, request: RunRequest, run_id: str
    ) -> None:
        self._client = client
        self._display = display
        self._keyboard = keyboard
        self._request = request
        self._run_id = run_id
        self._events: asyncio.Queue[tuple[Event | None, str] | None] = asyncio.Queue()
        self._asked: set[str] = set()
        self._stop: asyncio.Task[None] | None = None
        self._main = asyncio.current_task()

    async def run(self) -> int:
        """Start the run, and show it until it ends. Return the command's exit code.

        Raises `KeyboardInterrupt` if a second Ctrl-C ends the command before the run has ended.
        """
        loop = asyncio.get_running_loop()
        reader = asyncio.create_task(self._read_events())
        drawer = asyncio.create_task(self._draw())
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        self._display.start()
        try:
            with self._keyboard.hide_typing() if self._keyboard else nullcontext():
                await self._show_events()
        except asyncio.CancelledError:
            self._display.say(LEFT)
            raise KeyboardInterrupt from None
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            tasks = [reader, drawer, *([self._stop] if self._stop else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._display.stop()
        try:
            await reader
        except ServerProblem as problem:
            for call in self._display.running_calls:
                self._display.show(ToolCallError(tool_call_id=call.id, error="no result arrived", code=LOST_CODE))
            self._display.show(Error(message=str(problem), code=LOST_CODE))
        self._display.end()
        ending = self._display.ending
        is_answered = isinstance(ending, Done) and ending.finish_reason == "stop"
        return INTERRUPTED if self._stop else int(not is_answered)

    async def _read_events(self) -> None:
        """Read the run's events, even while a question is shown, because the server ends a run that no client reads."""
        try:
            async for received in self._client.run(self._request):
                self._events.put_nowait(received)
        finally:
            self._events.put_nowait(None)

    async def _draw(self) -> None:
        while True:
            self._display.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    async def _show_events(self) -> None:
        while (received := await self._events.get()) is not None:
            event, data = received
            self._display.show(event, data)
            # After a takeover the new server repeats questions that are still open.
            if isinstance(event, InputRequest) and event.request_id not in self._asked and not self._stop:
                self._asked.add(event.request_id)
                await self._ask(event)

    def _interrupt(self) -> None:
        """Stop the run. If it is being stopped, leave without waiting for that."""
        if not self._stop:
            self._display.hold_status(STOPPING)
            self._stop = asyncio.create_task(self._cancel_run())
        elif self._main:
            self._main.cancel()

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
            self._show_question(question)
            try:
                async with asyncio.timeout(question.timeout_seconds):
                    value = await self._keyboard.ask(question)
            except (TimeoutError, EOFError):
                # The user gives no answer.
                pass
            except KeyboardInterrupt:
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

    def _show_question(self, question: InputRequest) -> None:
        self._display.say(f"? {make_line(question.title)}")
        texts = [make_visible(question.message), make_line(question.placeholder), make_line(question.url)]
        texts += [f"{number}. {make_line(choice)}" for number, choice in enumerate(question.choices, 1)]
        for line in "\n".join(texts).splitlines():
            if line.strip():
                self._display.say(f"  {line}")
