"""One turn as it happens, written down row by row: the question, rounds of calls, the last text.

`ChatJournal` makes the rows, and what of them is kept where is a store's. `NoJournal` stands in where there is no chat
to write to.
"""

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import getsizeof
from typing import Any, Protocol

from callboard._history.records import ChatDict, HistoryCall, StoredStatus
from callboard._history.sources import CompactResults, compact_message_tools
from callboard._text import storable

MAX_EVENTS = 100
"""The most events that are kept of one call: of more the first half and the last."""
STEP_BYTES = 1_000
"""The bytes that a step takes beside its texts, roughly."""


@dataclass(frozen=True, slots=True)
class NewResponse:
    """A response that later requests may go on from.

    `previous` is the run that it goes on from itself, `brought` the messages of its own request.
    """

    previous: str | None
    brought: Sequence[ChatDict]


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn that is written: `message_id` is the client's assistant message, `user_content` what was asked.

    `place` counts the questions of the conversation, this one included. `results` are what the client's
    own functions returned, by the ids of their calls. `epoch` is that of the run's owner, where a log says who that is.
    `agent_id`: whose turn it is.
    """

    chat_id: str
    run_id: str
    message_id: str | None
    user_id: str | None
    user_content: str | list[dict[str, Any]] | None
    place: int | None = None
    results: Mapping[str, str] = field(default_factory=dict)
    response: NewResponse | None = None
    epoch: int | None = None
    agent_id: str | None = None


class Journal(Protocol):
    """A place where a run is written down.

    Every method raises `StorageError` where nothing can be written now. What was to be is kept,
    and written with what comes next: whoever has said so may go on.
    """

    async def begin(self) -> None:
        """Write the chat and the user's message; raises `UnknownChat` where the chat is another user's."""

    async def call_started(self, call: HistoryCall, text_before: str) -> None:
        """Write the call, before it runs; `text_before` is what was said since the last round."""

    async def call_progressed(self, tool_call_id: str, status: str, message: str, progress: float | None) -> None:
        """Write one status event."""

    async def call_ended(self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int | None) -> None:
        """Fill in the call's whole result, or what went wrong."""

    async def finish(self, text: str, *, is_answered: bool, details: Mapping[str, Any] | None = None) -> None:
        """Write the turn's last text; if it is the answer, also what of the results will be replayed.

        `details` are what the model sent beside it.
        """

    async def catch_up(self) -> None:
        """Write what could not be written before."""


class NoJournal:
    """A journal for runs without a saved chat, and for background tasks: nothing is kept."""

    async def begin(self) -> None:
        """Write nothing."""

    async def call_started(self, call: HistoryCall, text_before: str) -> None:
        """Write nothing."""

    async def call_progressed(self, tool_call_id: str, status: str, message: str, progress: float | None) -> None:
        """Write nothing."""

    async def call_ended(self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int | None) -> None:
        """Write nothing."""

    async def finish(self, text: str, *, is_answered: bool, details: Mapping[str, Any] | None = None) -> None:
        """Write nothing."""

    async def catch_up(self) -> None:
        """Write nothing."""


@dataclass(frozen=True, slots=True)
class RowWritten:
    """A row of a turn's messages, new or changed: `row` is its number among them, `values` are columns by their names.

    `tool_calls` are the calls of the round up to then, in OpenAI's form, which `columns` has as JSON.
    """

    row: int
    values: Mapping[str, Any]
    is_new: bool

    @property
    def columns(self) -> dict[str, Any]:
        """The columns as they are stored."""
        columns = dict(self.values)
        if "tool_calls" in columns:
            # Only now: each call of a round writes those before it once more.
            columns["tool_calls"] = json.dumps(columns["tool_calls"], ensure_ascii=False)
        return columns


@dataclass(frozen=True, slots=True)
class StatusWritten:
    """A status event of the call in that row; where `takes_a_place`, the first of the last half is dropped for it."""

    row: int
    status: StoredStatus
    takes_a_place: bool


Step = Turn | RowWritten | StatusWritten
"""A step of a turn; the turn itself is the first: its chat is there from then on, with the response and the results."""


class ChatJournal(ABC):
    """A journal of a turn of a chat: it makes steps of what happens, for a store to write."""

    def __init__(self, turn: Turn, compact_results: CompactResults) -> None:
        self.turn = turn
        self._compact_results = compact_results
        self._calls: dict[str, HistoryCall] = {}
        self._row_count = 0
        self._rows_of_calls: dict[str, int] = {}
        self._status_counts: Counter[str] = Counter()
        self._texts: list[str] = []
        self._round_index = -1
        self._round_row = -1
        self._round_calls: list[dict[str, Any]] = []
        self._bytes = 0

    @abstractmethod
    async def write(self, steps: Sequence[Step]) -> None:
        """Write the steps that come next, all or none of them."""

    async def restore(self) -> bool:
        """Go on with the turn as another server has left it; return whether there is anything of it.

        To be called before anything else, of a store that other servers share.
        """
        return False

    @property
    def calls(self) -> Sequence[HistoryCall]:
        """The calls of the turn; once it has ended, as they are replayed."""
        return tuple(self._calls.values())

    @property
    def size(self) -> int:
        """The bytes that the turn takes, roughly."""
        turn = self.turn
        response = self.turn.response
        asked = [turn.user_content, dict(turn.results), list(response.brought) if response else None]
        return self._bytes + _measure(asked)

    def ask(
        self,
        user_content: str | list[dict[str, Any]] | None,
        results: Mapping[str, str],
        response: NewResponse | None,
    ) -> None:
        """Take what was asked, once its files are read and secrets are out of it, in the place of `Turn`'s.

        To be called before `begin`.
        """
        self.turn = replace(self.turn, user_content=user_content, results=results, response=response)

    async def begin(self) -> None:
        """Write the chat and the user's message; raises `UnknownChat` where the chat is another user's."""
        results = {call_id: storable(result) for call_id, result in self.turn.results.items()}
        steps: list[Step] = [replace(self.turn, results=results)]
        content = self.turn.user_content
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            steps.append(self._add_row("user", content=storable(text), place=self.turn.place))
        await self.write(steps)

    async def call_started(self, call: HistoryCall, text_before: str) -> None:
        """Write the call's row; the first call of a round writes its assistant message too.

        That message has the agent's own calls, and not those that have a parent.
        """
        steps = [] if call.parent_call_id else [self._add_to_round(call, text_before)]
        row = self._add_row(
            "tool",
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name[:255],
            arguments=call.arguments,
            round_index=call.round_index,
            sequence_index=call.sequence_index,
            started_at=time.time(),
            provider_details=json.dumps(call.details) if call.details else None,
            parent_call_id=call.parent_call_id,
        )
        self._rows_of_calls[call.tool_call_id] = row.row
        self._calls[call.tool_call_id] = replace(call, message_id=self.turn.message_id)
        self._texts.append(text_before)
        self._bytes += 2 * STEP_BYTES + sum(map(getsizeof, (text_before, call.arguments))) + _measure(call.details)
        await self.write([*steps, row])

    def _add_to_round(self, call: HistoryCall, text_before: str) -> RowWritten:
        """Return the assistant message of the call's round, with the call."""
        is_first = call.round_index != self._round_index
        if is_first:
            self._round_index = call.round_index
            self._round_calls = []
        self._round_calls.append(
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.tool_name, "arguments": call.arguments},
            }
        )
        round_calls = tuple(self._round_calls)
        if not is_first:
            return RowWritten(self._round_row, {"tool_calls": round_calls}, is_new=False)
        said = self._add_row(
            "assistant", content=text_before or None, tool_calls=round_calls, round_index=call.round_index
        )
        self._round_row = said.row
        return said

    async def call_progressed(self, tool_call_id: str, status: str, message: str, progress: float | None) -> None:
        """Write one status event; of more than `MAX_EVENTS` of a call the first half and the last are kept."""
        takes_a_place = self._status_counts[tool_call_id] >= MAX_EVENTS
        self._status_counts[tool_call_id] += 1
        self._bytes += STEP_BYTES + getsizeof(message)
        reported = StoredStatus(status[:64], message, progress, time.time())
        await self.write([StatusWritten(self._rows_of_calls[tool_call_id], reported, takes_a_place)])

    async def call_ended(self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int | None) -> None:
        """Fill in the call's whole result, or what went wrong."""
        self._calls[tool_call_id] = replace(self._calls[tool_call_id], result=output)
        self._bytes += STEP_BYTES + getsizeof(output)
        ended = {
            "tool_output": output,
            "error_code": error_code,
            "ended_at": time.time(),
            "duration_ms": duration_ms,
        }
        await self.write([self._change_call(tool_call_id, ended)])

    async def finish(self, text: str, *, is_answered: bool, details: Mapping[str, Any] | None = None) -> None:
        """Write the turn's last text, and the compacted form of each result of which the answer cites but a part."""
        steps: list[Step] = []
        if is_answered:
            # Text before and between the rounds cites as well as the last.
            for call in compact_message_tools(self.calls, "".join([*self._texts, text]), self._compact_results):
                if call != self._calls[call.tool_call_id]:
                    self._calls[call.tool_call_id] = call
                    steps.append(self._change_call(call.tool_call_id, {"replay_output": call.result}))
        if text:
            written = json.dumps(details) if details else None
            steps.append(self._add_row("assistant", content=text, provider_details=written))
        self._bytes += len(steps) * STEP_BYTES + getsizeof(text)
        await self.write(steps)

    async def catch_up(self) -> None:
        """Write what could not be written before."""
        await self.write([])

    def _add_row(self, role: str, **values: object) -> RowWritten:
        turn = self.turn
        row = self._row_count
        self._row_count += 1
        owner = {"chat_id": turn.chat_id, "run_id": turn.run_id, "message_id": turn.message_id}
        if turn.agent_id is not None:
            owner["agent_id"] = turn.agent_id
        return RowWritten(row, {**owner, "role": role, "created_at": time.time(), **values}, is_new=True)

    def _change_call(self, tool_call_id: str, values: Mapping[str, Any]) -> RowWritten:
        return RowWritten(self._rows_of_calls[tool_call_id], values, is_new=False)


def _measure(value: object) -> int:
    """Return the bytes that a value takes, roughly, which JSON can hold."""
    match value:
        case dict():
            return getsizeof(value) + sum(map(_measure, value.values()))
        case list():
            return getsizeof(value) + sum(map(_measure, value))
        case _:
            return getsizeof(value)
