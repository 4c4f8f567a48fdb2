"""Makes the table rows of one turn: the question, the rounds of calls, the last text. Pure.

`callboard.storage.sql.run_record` writes them.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from callboard._history.sources import CompactResults, compact_message_tools
from callboard._history.turns import ChatDict, HistoryCall, StoredStatus, content_text
from callboard.text import storable

MAX_EVENTS = 100
"""The most status events that are stored for one call: half of them are the first, half the last."""


@dataclass(frozen=True, slots=True)
class NewResponse:
    """A response of the OpenAI routes that later requests may refer to.

    `previous` is the run id of the response that it continues, `new_messages` are the messages of its own request.
    """

    previous: str | None
    new_messages: Sequence[ChatDict]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a chat: one question of the user, and everything that answers it.

    Attributes:
        message_id: The client's id of the assistant message.
        user_content: The user's question, as text or content parts.
        place: The number of questions in the conversation, including this one.
        results: Results of functions that the client ran, by the ids of their calls.
        user_name: The user's name, None if the client sent none; user_email: likewise the e-mail address.
    """

    chat_id: str
    run_id: str
    message_id: str | None
    user_id: str | None
    user_content: str | list[dict[str, Any]] | None
    place: int | None = None
    results: Mapping[str, str] = field(default_factory=dict)
    response: NewResponse | None = None
    agent_id: str | None = None
    user_name: str | None = None
    user_email: str | None = None


@dataclass(frozen=True, slots=True)
class NewRow:
    """A new row of the table `messages`: `number` counts the rows of the turn from 0, `values` are its columns."""

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """New values for some columns of row `number` of the turn."""

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewStatus:
    """A status event of the call in row `number`; if `replaces_one`, the oldest event of the last half is deleted."""

    number: int
    status: StoredStatus
    replaces_one: bool


RowChange = Turn | NewRow | ChangedRow | NewStatus
"""A change to the tables. A `Turn` is the first: it creates the chat, and stores the response and client results."""


class TurnRows:
    """Makes the row changes of one turn, in order."""

    def __init__(self, turn: Turn, compact_results: CompactResults = "cited") -> None:
        self.turn = turn
        self.ending: str | None = None
        """The run's last event as JSON, if the turn was restored and has ended."""
        self._compact_results = compact_results
        self._calls: dict[str, HistoryCall] = {}
        self._started_at: dict[str, float] = {}
        self._row_count = 0
        self._rows_of_calls: dict[str, int] = {}
        self._status_counts: Counter[str] = Counter()
        self._texts: list[str] = []
        self._said: list[dict[int, str]] = []
        """The user's messages to the run, by row; those that the model has read together are in one dict."""
        self._round_index = -1

    @property
    def calls(self) -> Sequence[HistoryCall]:
        """The calls of the turn; after `finish` with their compacted results."""
        return tuple(self._calls.values())

    @property
    def open_calls(self) -> Sequence[HistoryCall]:
        """The calls that have no result yet."""
        return tuple(call for call in self.calls if call.tool_call_id in self._started_at)

    def restore(self, rows: Sequence[Any], calls: Sequence[HistoryCall]) -> None:
        """Continue a turn from its stored rows, in order; `calls` are the calls of its tool rows."""
        self._calls = {call.tool_call_id: call for call in calls}
        self._row_count = len(rows)
        self.ending = rows[0].ending if rows else None
        for number, row in enumerate(rows):
            if row.role == "tool":
                self._rows_of_calls[row.tool_call_id] = number
                if row.ended_at is None:
                    self._started_at[row.tool_call_id] = row.started_at
            elif row.role == "user" and number:
                self._note_said(number, row.content or "")
            elif row.role == "assistant":
                self._texts.append(row.content or "")
                self._round_index = self._round_index if row.round_index is None else row.round_index

    def begin(
        self,
        user_content: str | list[dict[str, Any]] | None,
        results: Mapping[str, str] | None = None,
        response: NewResponse | None = None,
    ) -> list[RowChange]:
        """Return the changes that store the question; the caller has redacted secrets and converted files to text."""
        if self._row_count:
            # Another server has begun the turn.
            return []
        stored = {call_id: storable(result) for call_id, result in (results or {}).items()}
        self.turn = replace(self.turn, user_content=user_content, results=stored, response=response)
        changes: list[RowChange] = [self.turn]
        if user_content is not None:
            text = user_content if isinstance(user_content, str) else json.dumps(user_content, ensure_ascii=False)
            changes.append(self._add_row("user", content=storable(text), place=self.turn.place))
        return changes

    def start_call(self, call: HistoryCall, text_before: str) -> list[RowChange]:
        """Return the changes that store a call before it runs: its row, and the assistant message of its round.

        A call with a parent belongs to the parent's round. `text_before` is the text since the last round.
        """
        changes = []
        if call.parent_call_id is None and call.round_index != self._round_index:
            self._round_index = call.round_index
            changes.append(self._add_row("assistant", content=text_before or None, round_index=call.round_index))
        started_at = self._started_at[call.tool_call_id] = time.time()
        row = self._add_row(
            "tool",
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name[:255],
            arguments=call.arguments,
            round_index=call.round_index,
            sequence_index=call.sequence_index,
            started_at=started_at,
            provider_details=json.dumps(call.details) if call.details else None,
            parent_call_id=call.parent_call_id,
        )
        self._rows_of_calls[call.tool_call_id] = row.number
        self._calls[call.tool_call_id] = replace(call, message_id=self.turn.message_id)
        self._texts.append(text_before)
        return [*changes, row]

    def add_user_message(self, text_before: str, content: str, details: Mapping[str, Any] | None) -> list[RowChange]:
        """Return the changes that store a message of the user to the run, after the answer's text since the last row.

        `details` is the provider's data about this text.
        """
        changes: list[RowChange] = []
        if text_before:
            written = json.dumps(details) if details else None
            changes.append(self._add_row("assistant", content=text_before, provider_details=written))
        self._texts.append(text_before)
        row = self._add_row("user", content=content, round_index=self._round_index)
        self._note_said(row.number, content)
        return [*changes, row]

    def _note_said(self, number: int, content: str) -> None:
        if not (self._said and number - 1 in self._said[-1]):
            self._said.append({})
        self._said[-1][number] = content

    def add_status(self, tool_call_id: str, status: str, message: str, progress: float | None) -> list[RowChange]:
        """Return the change that stores a status event; see `MAX_EVENTS`."""
        replaces_one = self._status_counts[tool_call_id] >= MAX_EVENTS
        self._status_counts[tool_call_id] += 1
        stored = StoredStatus(status[:64], message, progress, time.time())
        return [NewStatus(self._rows_of_calls[tool_call_id], stored, replaces_one)]

    def change_arguments(self, tool_call_id: str, arguments: str) -> list[RowChange]:
        """Return the change that stores new arguments of a call; none if the call is not in this turn."""
        if tool_call_id not in self._calls:
            return []
        self._calls[tool_call_id] = replace(self._calls[tool_call_id], arguments=arguments)
        return [self._change_call(tool_call_id, {"arguments": arguments})]

    def change_details(self, tool_call_id: str, details: Mapping[str, Any]) -> list[RowChange]:
        """Return the change that stores the provider's data about a call, if it has changed since the call's start."""
        if tool_call_id not in self._calls or details == self._calls[tool_call_id].details:
            return []
        self._calls[tool_call_id] = replace(self._calls[tool_call_id], details=details)
        return [self._change_call(tool_call_id, {"provider_details": json.dumps(details)})]

    def end_call(
        self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int | None
    ) -> list[RowChange]:
        """Return the changes that store a call's result or error; none if the call is not in this turn."""
        if tool_call_id not in self._calls:
            return []
        self._calls[tool_call_id] = replace(self._calls[tool_call_id], result=output)
        # The system clock may have been set back since the call started.
        ended_at = max(self._started_at.pop(tool_call_id, 0.0), time.time())
        ended = {"tool_output": output, "error_code": error_code, "ended_at": ended_at, "duration_ms": duration_ms}
        return [self._change_call(tool_call_id, ended)]

    def finish(
        self,
        text: str,
        *,
        is_answered: bool,
        details: Mapping[str, Any] | None = None,
        ending: str | None = None,
        replaced: Mapping[str, str] = MappingProxyType({}),
    ) -> list[RowChange]:
        """Return the changes that store the turn's last text, its ending, and its results for later turns.

        Results are compacted only if the turn ended with an answer (`is_answered`). `details` is the provider's data
        about the text, `ending` is the run's last event as JSON, `replaced` is as in `TurnContext`.
        """
        changes: list[RowChange] = []
        texts = self._texts
        # The run is kept for a while.
        self._texts = []
        told = [replace(call, result=replaced.get(call.tool_call_id, call.result)) for call in self.calls]
        if is_answered:
            # The text before and between rounds may contain citations too.
            told = compact_message_tools(told, "".join([*texts, text]), self._compact_results)
        for call in told:
            if call != self._calls[call.tool_call_id]:
                self._calls[call.tool_call_id] = call
                changes.append(self._change_call(call.tool_call_id, {"replay_output": call.result}))
        for said in [{0: content_text(self.turn.user_content)} if self._row_count else {}, *self._said]:
            if (new := replaced.get("\n\n".join(said.values()))) is not None:
                changes += [ChangedRow(number, {"replay_output": "" if number > min(said) else new}) for number in said]
        if text:
            written = json.dumps(details) if details else None
            changes.append(self._add_row("assistant", content=text, provider_details=written))
        if ending and self._row_count:
            changes.append(ChangedRow(0, {"ending": ending}))
        return changes

    def _add_row(self, role: str, **values: object) -> NewRow:
        turn = self.turn
        number = self._row_count
        self._row_count += 1
        owner = {"chat_id": turn.chat_id, "run_id": turn.run_id, "message_id": turn.message_id}
        if turn.agent_id is not None:
            owner["agent_id"] = turn.agent_id
        return NewRow(number, {**owner, "role": role, "created_at": time.time(), **values})

    def _change_call(self, tool_call_id: str, values: Mapping[str, Any]) -> ChangedRow:
        return ChangedRow(self._rows_of_calls[tool_call_id], values)
