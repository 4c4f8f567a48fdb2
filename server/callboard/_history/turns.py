"""The turns of a stored chat as plain values, and the calls of them that the client did not send. Pure.

Each function returns messages whose calls have no results yet: `replay` adds them. A turn is found by

- `insert_turns_by_message_id`: the `id` of the message with its text,
- `insert_turns_by_client_call`: a call of the client's own function, the only one that the client saw,
- `insert_turns_by_text`: the text of its answer, from clients of the OpenAI routes that see no calls,
- `join_responses`: the response that a request continues.

Open WebUI sends the calls themselves: `openwebui.details_parser` reads them from the text.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import Any, Protocol

from callboard_protocol.events import EXTERNAL_ID_PREFIX, FORM_ID_PREFIX

ChatDict = dict[str, Any]
"""A chat message in the format of OpenAI's chat completions."""


@dataclass(frozen=True, slots=True)
class HistoryCall:
    """A tool call of a chat: stored before its tool runs, replayed in later turns.

    Attributes:
        arguments: The text as the call runs: repaired, changed by the user, without secrets.
        round_index: Counts the rounds of the turn, from 0.
        sequence_index: Counts the calls of the round, from 0.
        details: The provider's data about the call, as in `ProviderDetails`.
        message_id: The client's id of the assistant message.
        result: None until the call has ended; an empty result is "".
        parent_call_id: The call that started the agent which made this call. None for the agent's own calls; only
            these are replayed.
    """

    tool_call_id: str
    tool_name: str
    arguments: str
    round_index: int = 0
    sequence_index: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None
    result: str | None = None
    parent_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """A stored `tool:status` event of a call; `at` is in seconds since the epoch, `progress` is 0 to 100 or None."""

    status: str
    message: str
    progress: float | None
    at: float


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A stored round: the text before the calls, and the calls in OpenAI's format.

    Or a message that the user has sent to the run (`said`), and the text before it.
    """

    text: str
    calls: Sequence[dict[str, Any]]
    said: str = ""


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The stored turn of a run: the text of the question, the rounds of calls, the last text.

    `place` is the number of questions in the conversation including this one, None if unknown.
    """

    run_id: str
    question: str
    rounds: tuple[StoredRound, ...]
    last_text: str
    place: int | None = None

    @property
    def text(self) -> str:
        """The whole text of the answer, as clients read it that see no calls."""
        return "".join([*(one.text for one in self.rounds), self.last_text])

    @property
    def call_ids(self) -> frozenset[str]:
        return frozenset(call["id"] for one in self.rounds for call in one.calls)

    def as_messages(self, without: frozenset[str] = frozenset()) -> list[ChatDict]:
        """Return the messages of the turn after its question, without the calls whose ids are in `without`.

        `replay` adds the results.
        """
        messages: list[ChatDict] = []
        for one in self.rounds:
            calls = [call for call in one.calls if call["id"] not in without]
            if calls or one.text:
                entry = {"role": "assistant", "content": one.text or None}
                messages.append({**entry, "tool_calls": calls} if calls else entry)
            if one.said:
                messages.append({"role": "user", "content": one.said})
        if self.last_text:
            messages.append({"role": "assistant", "content": self.last_text})
        return messages


@dataclass(frozen=True, slots=True)
class Interjection:
    """A message of the user to a run: the client's id of the answer, the round before it (-1: none), and its text."""

    message_id: str | None
    round_index: int
    text: str


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The stored history of a chat: its tool calls, oldest first.

    `answers` are the texts of answers without calls, each with the provider's data about it. `model` is the name of
    the model that the user chose for this chat, None without a choice. `is_missing` is True if the database could not
    be read. `turns` are the turns, oldest first, if they were asked for. `questions` are the texts that models
    get in place of questions, by the questions' texts. `said` are the messages that the user has sent to runs.
    """

    calls: tuple[HistoryCall, ...] = ()
    answers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    model: str | None = None
    is_missing: bool = False
    turns: Sequence[StoredTurn] = ()
    questions: Mapping[str, str] = field(default_factory=dict)
    said: Sequence[Interjection] = ()

    @property
    def tool_call_ids(self) -> frozenset[str]:
        return frozenset(call.tool_call_id for call in self.calls)


def message_text(content: str | None) -> str:
    """Return the text of a stored message, which is a plain text or a JSON list of content parts."""
    if not content or not content.startswith("[{"):
        return content or ""
    try:
        parts = json.loads(content)
    except ValueError:
        return content
    return content_text(parts) if all(isinstance(part, dict) and "type" in part for part in parts) else content


def content_text(content: str | list[dict[str, Any]] | None) -> str:
    """Return the text of a message's content, or the texts of its parts, each a line."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


CLIENT_PREFIXES = (EXTERNAL_ID_PREFIX, FORM_ID_PREFIX)


class MessageRow(Protocol):
    """A row of a chat. An assistant's row with a `round_index` is the text before a round of calls.

    A user's row with a `round_index` is a message to the run, which the model read after this round.
    """

    run_id: str
    role: str
    content: str | None
    place: int | None
    round_index: int | None
    parent_call_id: str | None
    tool_call_id: str | None
    tool_name: str | None
    arguments: str | None


def format_call(call_id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    """Return a call in OpenAI's format."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def group_calls(rows: Iterable[MessageRow]) -> Mapping[tuple[str, int | None], list[dict[str, Any]]]:
    """Return the calls of these rows in OpenAI's format by run and round, without those of sub-agents."""
    rounds: defaultdict[tuple[str, int | None], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.role == "tool" and row.parent_call_id is None:
            rounds[row.run_id, row.round_index].append(format_call(row.tool_call_id, row.tool_name, row.arguments))
    return rounds


def join_responses(
    run_id: str, stored: Mapping[str, tuple[str | None, str]], turns: Sequence[StoredTurn]
) -> list[ChatDict]:
    """Return the conversation up to the end of that run, without results of calls; `replay` adds them.

    `stored` has for each response of the chat, by run id, the run id of the response before it and the new messages of
    its request as a JSON list.
    """
    unused = dict(stored)
    answers = {turn.run_id: turn.as_messages() for turn in turns}
    backwards: list[list[ChatDict]] = []
    at: str | None = run_id
    while at in unused:
        previous, new_messages = unused.pop(at)
        backwards.append([*json.loads(new_messages), *answers.get(at, [])])
        at = previous
    return [message for part in reversed(backwards) for message in part]


def read_turns(rows: Iterable[MessageRow]) -> list[StoredTurn]:
    """Return the turns of stored messages, oldest first."""
    by_run: defaultdict[str, list[MessageRow]] = defaultdict(list)
    for row in rows:
        by_run[row.run_id].append(row)
    return [_read_turn(run_id, rows) for run_id, rows in by_run.items()]


def _read_turn(run_id: str, rows: Sequence[MessageRow]) -> StoredTurn:
    question = ""
    last_text = ""
    rounds: list[StoredRound] = []
    place: int | None = None
    calls = group_calls(rows)
    for row in rows:
        if row.role == "user" and row.round_index is not None:
            rounds.append(StoredRound(last_text, (), row.content or ""))
            last_text = ""
        elif row.role == "user":
            question = message_text(row.content)
            place = row.place
        elif row.role == "assistant" and row.round_index is not None:
            rounds.append(StoredRound(row.content or "", calls[run_id, row.round_index]))
        elif row.role == "assistant":
            last_text = row.content or ""
    return StoredTurn(run_id, question, tuple(rounds), last_text, place)


def lacks_calls(sent: Sequence[ChatDict], *, by_text: bool) -> bool:
    """Return whether the store may have calls that are missing in these messages."""
    return any((by_text and _is_bare(message)) or _list_external_ids(message) for message in sent)


def insert_turns_by_message_id(
    sent: Iterable[ChatDict], calls: Iterable[HistoryCall], said: Iterable[Interjection] = ()
) -> list[ChatDict]:
    """Return `sent` with the calls of the turns whose text has the `id` of the message, one message for each round.

    The user's messages to the run follow their rounds. A turn is inserted before the first assistant message with its
    id that has no calls of its own.
    """
    turns: defaultdict[object, list[HistoryCall]] = defaultdict(list)
    for call in calls:
        if call.message_id and not call.parent_call_id:
            turns[call.message_id].append(call)
    heard: defaultdict[object, list[Interjection]] = defaultdict(list)
    for one in said:
        heard[one.message_id].append(one)
    whole: list[ChatDict] = []
    for message in sent:
        if message["role"] == "assistant" and not message.get("tool_calls") and isinstance(message.get("id"), str):
            stored = sorted(turns.pop(message["id"], ()), key=lambda call: (call.round_index, call.sequence_index))
            rounds = {index: list(calls) for index, calls in groupby(stored, key=lambda call: call.round_index)}
            spoken = heard.pop(message["id"], ())
            for index in sorted({*rounds, *(one.round_index for one in spoken)}):
                if index in rounds:
                    calls_of = [format_call(one.tool_call_id, one.tool_name, one.arguments) for one in rounds[index]]
                    whole.append({"role": "assistant", "content": None, "tool_calls": calls_of})
                whole += ({"role": "user", "content": one.text} for one in spoken if one.round_index == index)
        whole.append(message)
    return whole


def insert_turns_by_client_call(sent: Sequence[ChatDict], turns: Sequence[StoredTurn]) -> list[ChatDict]:
    """Return `sent` with the other calls of each turn that has a call of the client's functions in `sent`."""
    known_ids = _list_call_ids(sent)
    turn_of = {call_id: turn for turn in turns for call_id in turn.call_ids}
    turn_of |= {f"{FORM_ID_PREFIX}{turn.run_id}": turn for turn in turns}
    # Some clients send each call of a round in a message of its own.
    restored: set[str] = set()
    whole: list[ChatDict] = []
    for message in sent:
        ids = _list_external_ids(message)
        turn = turn_of.get(ids[0]) if ids else None
        if turn is None or turn.run_id in restored or turn.call_ids <= known_ids:
            whole.append(message)
            continue
        restored.add(turn.run_id)
        others = known_ids - {call["id"] for call in message["tool_calls"]}
        if ids[0].startswith(FORM_ID_PREFIX):
            # The client saw the last text of the turn as this call.
            whole += [*replace(turn, last_text="").as_messages(others), {**message, "content": None}]
        else:
            whole += turn.as_messages(others)
    return whole


def insert_turns_by_text(sent: Sequence[ChatDict], turns: Sequence[StoredTurn]) -> list[ChatDict]:
    """Return `sent` with the calls of the turns whose answers it has as texts, for clients that may not see calls.

    White space is ignored. Turns are matched from the last message backwards, so that their order is that of the
    messages. If several turns have the same text, the order of preference is: same number of questions before it, same
    question, newest.
    """
    index = _TurnIndex(turns, _list_call_ids(sent))
    backwards: list[list[ChatDict]] = []
    groups = [(is_bare, list(group)) for is_bare, group in groupby(sent, _is_bare)]
    questions = (sum(message["role"] == "user" for message in group) for _, group in groups)
    asked = list(accumulate(questions, initial=0))
    end = len(turns)
    for number in range(len(groups) - 1, -1, -1):
        is_bare, group = groups[number]
        before = groups[number - 1][1][-1] if number else None
        if is_bare and not _ends_turn_with_calls(before):
            text = "".join(message["content"] for message in group)
            found = index.find(text, _read_question(before), asked[number], end)
            if found is not None:
                end = found
                group = turns[found].as_messages() if turns[found].rounds else group
        backwards.append(group)
    return [message for group in reversed(backwards) for message in group]


class _TurnIndex:
    """Finds turns by their texts, among the turns that have no call in the client's messages."""

    def __init__(self, turns: Sequence[StoredTurn], known_ids: frozenset[str]) -> None:
        self._numbers: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, turn in enumerate(turns):
            if turn.call_ids.isdisjoint(known_ids) and (text := _drop_space(turn.text)):
                for key in _list_keys(text, _drop_space(turn.question), turn.place):
                    self._numbers[key].append(number)

    def find(self, text: str, question: str, asked: int, end: int) -> int | None:
        """Return the index below `end` of the best match; `asked` is the number of questions before the answer."""
        for key in _list_keys(_drop_space(text), _drop_space(question), asked):
            numbers = self._numbers.get(key, ())
            if count := bisect_left(numbers, end):
                return numbers[count - 1]
        return None


def _list_keys(text: str, question: str, place: int | None) -> Iterator[tuple[object, ...]]:
    """Yield the keys of a turn, the most specific first; turns with an equal key match."""
    yield text, question, place
    yield text, place
    yield text, question, "anywhere"
    yield text, "anywhere"


def _list_call_ids(messages: Iterable[ChatDict]) -> frozenset[str]:
    return frozenset(call["id"] for message in messages for call in message.get("tool_calls") or ())


def _drop_space(text: str) -> str:
    return "".join(text.split())


def _is_bare(message: ChatDict) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls") and isinstance(message.get("content"), str)


def _list_external_ids(message: ChatDict) -> list[str]:
    ids = (call.get("id") or "" for call in message.get("tool_calls") or ())
    return [one for one in ids if one.startswith(CLIENT_PREFIXES)]


def _ends_turn_with_calls(before: ChatDict | None) -> bool:
    """Return whether the answer after `before` ends a turn whose calls are in the messages.

    An answer after the result of a client's own call is the answer of another run.
    """
    if before is None or before["role"] != "tool":
        return False
    return not (before.get("tool_call_id") or "").startswith(CLIENT_PREFIXES)


def _read_question(before: ChatDict | None) -> str:
    return content_text(before.get("content")) if before and before["role"] == "user" else ""
