"""One answer: its events taken in and shown, its questions asked, Ctrl-C heard."""

import asyncio
import signal
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from callboard._cli.chat.client import ServerClient, ServerProblem
from callboard._cli.chat.displays import RECONNECTING, Display
from callboard._cli.chat.keyboard import Keyboard
from callboard_protocol import Done, Event, InputRequest, RunRequest

TICK_SECONDS = 0.05

STOPPING = "Stopping… Ctrl-C once more leaves at once."
LEFT = "Left: whether the run has stopped is not known."
NOBODY = "Nobody can be asked here, so what needs an answer is not done."
NOT_TAKEN = "The server did not take the answer: it is too late, or somebody else has given one."

Ending = Literal["well", "badly", "stopped", "left"]


class Turn:
    """Plays one run; `keyboard` is None where nobody can be asked."""

    def __init__(self, client: ServerClient, display: Display, keyboard: Keyboard | None) -> None:
        self._client = client
        self._display = display
        self._keyboard = keyboard
        self._run_id = ""
        self._asking = asyncio.Lock()
        self._questions: dict[str, tuple[InputRequest, asyncio.Task[None]]] = {}
        self._stop: asyncio.Task[None] | None = None
        self._is_left = asyncio.Event()

    async def play(self, request: RunRequest) -> Ending:
        """Show the run that answers the request, to its end."""
        self._run_id = request.run_id or ""
        loop = asyncio.get_running_loop()
        quiet: AbstractContextManager[None] = self._keyboard.quiet() if self._keyboard else nullcontext()
        reader = asyncio.create_task(self._client.run(request, self._take, self._tell_of_waiting))
        leaving = asyncio.create_task(self._is_left.wait())
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            with quiet:
                while not reader.done() and not leaving.done():
                    self._display.tick()
                    await asyncio.wait({reader, leaving}, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                await self._let_go_of_questions()
                self._finish(reader)
                self._display.end()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await _cancel(reader, leaving, self._stop)
        return self._ending()

    def _finish(self, reader: asyncio.Task[None]) -> None:
        answer = self._display.answer
        if not reader.done():
            answer.lose(LEFT, time.monotonic())
            return
        try:
            reader.result()
        except ServerProblem as problem:
            answer.lose(str(problem), time.monotonic())

    def _ending(self) -> Ending:
        ending = self._display.answer.ending
        if self._is_left.is_set():
            return "left"
        if self._stop:
            return "stopped"
        return "well" if isinstance(ending, Done) and ending.finish_reason == "stop" else "badly"

    def _take(self, data: str, event: Event | None) -> None:
        self._display.take(data, event)
        if isinstance(event, InputRequest) and event.request_id not in self._questions:
            # A server that goes on with the run asks again what nobody has answered.
            self._questions[event.request_id] = (event, asyncio.create_task(self._ask(event)))
        for question, asking in self._questions.values():
            if not self._display.answer.is_awaited(question):
                asking.cancel()

    def _tell_of_waiting(self) -> None:
        self._display.tell(RECONNECTING)

    def _interrupt(self) -> None:
        if self._stop:
            self._is_left.set()
            return
        self._display.announce(STOPPING)
        self._stop = asyncio.create_task(self._cancel_run())

    async def _cancel_run(self) -> None:
        try:
            await self._client.cancel(self._run_id)
        except ServerProblem as problem:
            self._display.announce(str(problem))

    async def _ask(self, question: InputRequest) -> None:
        """Ask the user, after what else is asked already, and tell the server."""
        value: bool | str | None = None
        try:
            async with asyncio.timeout(question.timeout_seconds), self._asking:
                if not self._keyboard:
                    self._display.tell(NOBODY)
                elif self._display.answer.is_awaited(question):
                    value = await self._keyboard.ask(question, self._display)
        except TimeoutError:
            pass
        try:
            await self._client.answer(self._run_id, question.request_id, value, asked=self._keyboard is not None)
        except ServerProblem:
            self._display.tell(NOT_TAKEN)

    async def _let_go_of_questions(self) -> None:
        await _cancel(*(asking for _, asking in self._questions.values()))


async def _cancel(*tasks: asyncio.Task[None] | asyncio.Task[bool] | asyncio.Task[Literal[True]] | None) -> None:
    there = [task for task in tasks if task]
    for task in there:
        task.cancel()
    await asyncio.gather(*there, return_exceptions=True)
