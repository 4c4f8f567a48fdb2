"""The face of what is kept: a `Store`, and the small repositories that it hands out, each of one user.

`callboard.storage.sql.SqlStore` keeps it in SQLite or PostgreSQL. Every method that reads or writes raises
`StorageError` where it cannot.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from callboard._history import ChatHistory, ChatJournal, CompactResults, StoredTurn, Turn
from callboard.storage.values import (
    Attribute,
    AttributeKind,
    AttributeValue,
    AuditEntry,
    AuditFilter,
    CallPage,
    CallSummary,
    ChatFilter,
    ChatPage,
    ChatSummary,
    DayUsage,
    Embed,
    GivenAnswer,
    Item,
    KeptResult,
    Line,
    LoggedFrame,
    LoggedRun,
    Meant,
    Memory,
    NoteKind,
    OpenRun,
    Orders,
    PastChat,
    PastResponse,
    Record,
    SaidMessage,
    SelfNote,
    StoreAccess,
    StoredCall,
    StoredMessage,
    StoreQueues,
    ToolCallFilter,
    ToolCallPage,
    ToolSummary,
    TurnPage,
    TurnSummary,
)


class Chats(Protocol):
    """The chats of a store, as one user may see them: for anybody else a chat does not exist (`UnknownChat`)."""

    async def history(self, chat_id: str) -> ChatHistory:
        """Return all tool calls of a chat and its model; empty for a chat that is not known yet.

        Raises `UnknownChat` where the chat is another user's: who asks must not learn that it exists.
        """

    async def turns(self, chat_id: str) -> list[StoredTurn]:
        """Return the turns of a chat, oldest first; none where there is no such chat of this user."""

    async def messages(self, chat_id: str) -> list[StoredMessage]:
        """Return every message, in the order it was written; raises `UnknownChat`."""
        return [message async for page in self.message_pages(chat_id) for message in page]

    def message_pages(self, chat_id: str) -> AsyncIterator[list[StoredMessage]]:
        """Return the same, piece by piece: a long chat at once would hold up everybody."""

    def export_pages(self, chat_id: str) -> AsyncIterator[list[Line]]:
        """Return every message as a line of an export, those of tools with their `events`, piece by piece."""

    async def timeline(self, chat_id: str) -> list[StoredCall]:
        """Return every call with its status events, in the order they started; raises `UnknownChat`."""
        return [call async for page in self.timeline_pages(chat_id) for call in page]

    def timeline_pages(self, chat_id: str) -> AsyncIterator[list[StoredCall]]:
        """Return the same, piece by piece."""

    async def tool_call(self, chat_id: str, tool_call_id: str) -> StoredCall:
        """Return one call, whole; raises `UnknownChat`, `UnknownToolCall`."""

    async def tool_calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> ToolCallPage:
        """Return a page of calls, newest first; raises `RequestError` for a cursor that is none of ours."""

    async def chat_of_call(self, tool_call_id: str) -> str | None:
        """Return the chat of a call that the client runs, None where this user has no such call."""

    async def chosen_model(self, chat_id: str) -> str | None:
        """Return the model that was chosen for a chat, None where none was; raises `UnknownChat`."""

    async def choose_model(self, chat_id: str, name: str | None) -> None:
        """Choose the model of a chat's next runs, None for the server's; raises `UnknownChat`."""

    async def delete(self, chat_id: str) -> None:
        """Forget a chat with all its calls; raises `UnknownChat`."""

    async def delete_all(self, begun_before: float) -> int:
        """Forget the chats that a client has named and that began before then, in Unix seconds; returns how many."""


class Overview(Protocol):
    """The chats, turns and calls of a store as a person looks through them, as one user may see them.

    All of it comes in pages whose cost does not grow with what there is before and after them.
    """

    async def chats(self, wanted: ChatFilter, limit: int, cursor: str | None = None) -> ChatPage:
        """Return a page of chats, those with the newest answers first.

        Raises `RequestError` for a cursor that is none of ours, as the others do.
        """

    async def chat(self, chat_id: str) -> ChatSummary:
        """Return one chat; raises `UnknownChat`."""

    async def turns(self, chat_id: str, limit: int, cursor: str | None = None) -> TurnPage:
        """Return the turns of a chat, newest first; raises `UnknownChat`."""

    async def newest_turns(self, limit: int) -> list[TurnSummary]:
        """Return the turns that were asked last, of all chats, newest first.

        Their questions are what users typed, cut where they are very long. They have the calls that failed, and no
        answers and texts.
        """

    async def turn(self, chat_id: str, run_id: str) -> TurnSummary | None:
        """Return one turn of a chat, None where it is not there; raises `UnknownChat`."""

    async def calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> CallPage:
        """Return a page of calls, newest first."""

    async def calls_of_turn(self, chat_id: str, run_id: str, limit: int, cursor: str | None = None) -> CallPage:
        """Return the calls of a turn with their status events, oldest first; raises `UnknownChat`."""

    async def tools(self, wanted: ToolCallFilter) -> list[ToolSummary]:
        """Return how the newest calls went, tool by tool, the most used first."""

    async def slowest_calls(self, wanted: ToolCallFilter, limit: int) -> list[CallSummary]:
        """Return those of the newest calls that took longest, the slowest first."""

    async def results(self, chat_id: str, tool_call_ids: Collection[str]) -> dict[str, KeptResult]:
        """Return what is kept of some results of a chat, by the ids of their calls; raises `UnknownChat`."""

    async def open_runs(self) -> list[OpenRun]:
        """Return the runs of chats that go on, of every server that shares the database, oldest first.

        At most a few hundred; none where runs are logged nowhere.
        """

    async def find_missing(self, chat_ids: Collection[str]) -> set[str]:
        """Return those of some chats that are not there: never kept, or forgotten."""

    async def count_calls(self, chat_id: str, before: float) -> int:
        """Return how many calls of a chat began before then, in seconds since the epoch; raises `UnknownChat`."""


class Responses(Protocol):
    """The things that later requests of a user's OpenAI clients refer to: a response by its run, an item by its id."""

    async def load(self, run_id: str) -> PastResponse | None:
        """Return the response of a run, None where there is none of this user's."""

    async def keep(self, items: Sequence[Item], chat_id: str | None) -> None:
        """Write the items of one response, each with an `id` of its own; whoever deletes the chat deletes them.

        The response itself may be among them, with an id that begins with `RESPONSE_PREFIX`.
        """

    async def find(self, ids: Collection[str]) -> dict[str, Item]:
        """Return the items of these ids, by id; one that was never kept, or is another user's, is not among them."""


class Memories(Protocol):
    """The texts that agents were asked to remember of one user: short, found by their words or by what they mean."""

    async def newest(self, limit: int) -> list[Memory]:
        """Return what was stored or changed last."""

    async def foremost(self, limit: int) -> list[Memory]:
        """Return the newest and most used: each use makes a memory a week younger."""

    async def search(self, query: str, limit: int) -> list[Memory]:
        """Return those with any word of the query, best first; one without words finds nothing."""

    async def search_by_meaning(self, query: str, limit: int, embed: Embed, model: str) -> Meant:
        """Return those nearest to the query in meaning and in words, best first.

        `embed` is called for the query and for memories that have no vector of `model` yet, and
        what it raises is raised. `ValueError` where what it gives is no vector.
        """

    async def count_use(self, memory_ids: Sequence[int]) -> None:
        """Count these as found once more."""

    async def add(self, text: str) -> tuple[Memory, bool]:
        """Return the memory of exactly this text, and whether it is new."""

    async def change(self, memory_id: int, text: str) -> bool:
        """Give it another text; False where this user has no such memory."""

    async def remove(self, memory_id: int) -> bool:
        """Forget it; False where this user has no such memory."""


class Profile(Protocol):
    """The profile of one user: what is known of them, as named values of a type."""

    async def attributes(self) -> Mapping[str, Attribute]:
        """Return all of them, by name in alphabetical order."""

    async def put(self, name: str, kind: AttributeKind, value: AttributeValue) -> None:
        """Set the attribute, whatever it was."""

    async def remove(self, name: str) -> bool:
        """Forget the attribute; False where there is none of that name."""


class SelfNotes(Protocol):
    """The notes that one agent writes about itself for one user, and descriptions of which the newest holds.

    They are only ever added: the version of each is its place among them.
    """

    async def newest(self, kind: NoteKind, limit: int) -> list[SelfNote]:
        """Return the last ones, newest first."""

    async def description(self, version: int) -> SelfNote | None:
        """Return the description of that version, None where there is none."""

    async def add(self, kind: NoteKind, text: str) -> int:
        """Write one more; returns its version."""


class PastChats(Protocol):
    """The chats of one user as an agent may look back at them, but for the one that is going on."""

    async def search(self, query: str, limit: int) -> list[SaidMessage]:
        """Return what was said with any word of the query, best first; what tools did is not searched."""

    async def recent(self, limit: int) -> list[PastChat]:
        """Return the last ones, the newest first."""


class Records(Protocol):
    """The values that one skill keeps of one user, each under a key: any value that JSON can hold.

    No other skill and no other user sees it. Keys have at most 255 characters, values at most 1 MiB as JSON; what is
    larger, and what JSON cannot hold, is a `ValueError`.
    """

    async def get(self, key: str) -> Record | None:
        """Return what is kept under a key, None where nothing is."""

    async def put(self, key: str, value: Any) -> None:
        """Keep a value under a key, whatever was there."""

    async def put_new(self, key: str, value: Any) -> bool:
        """Keep a value under a key where nothing is; False where something is, which stays."""

    async def remove(self, key: str) -> bool:
        """Forget what is kept under a key; False where nothing is."""

    async def find(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[Record]:
        """Return what is kept under keys that begin with `prefix` and come after `after`, in the order of the keys.

        That order is the one of their code points.
        """


class Usage(Protocol):
    """What a user has used of a day: a day of UTC, by the store's clock. Whoever shares the store counts together."""

    async def today(self) -> DayUsage:
        """Return what was used today, and when the day ends."""

    async def take_call(self, limit: int) -> bool:
        """Count one call more, unless there have been as many as `limit` today; return whether it was counted."""

    async def add_tokens(self, tokens: int) -> None:
        """Count tokens."""


class Audit(Protocol):
    """The audit: entries that are appended, and never changed. Their times are the store's."""

    async def write(self, entry: AuditEntry, keep_days: float = 0) -> None:
        """Append an entry that is kept for so many days, 0 for ever: until then the store refuses to delete it."""

    def read(self, wanted: AuditFilter) -> AsyncIterator[list[AuditEntry]]:
        """Return the entries that are wanted, oldest first, piece by piece."""

    async def forget_user(self, user_id: str, key: str | None = None) -> int:
        """Forget the arguments of a user's calls, and append that; return how many there were. The entries stay."""

    async def drop(self) -> int:
        """Delete the entries whose time is over; return how many."""


class RunLog(Protocol):
    """The frames of runs that go on, and of those that ended a short while ago; which server owns which run.

    Each belongs to one server, which writes into it as long as it owns a run; any other may read it, and leave orders
    for its owner. The journal of the store refuses what an earlier owner writes, by the turn's `epoch`. Times are those
    of the store's clock.
    """

    sweep_seconds: float
    """The seconds after which a server looks for news that it was not told of."""
    is_one_with_journal: bool
    """True where frames and a journal's rows that are written at one time share a transaction."""

    def open(self, lease_seconds: float, on_news: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """Let this server be known as one that is there, until the block ends: then others may own its runs at once.

        It says so again and again, so that others notice within `lease_seconds` when it is gone. `on_news` is called
        with the id of a run that has new frames, or orders, and with "" where one was handed over; now and then one
        goes untold. Raises `StorageError` where the store cannot be written at the beginning.
        """

    def was_alone(self) -> bool:
        """Return whether there was no other server, when this one last looked, that could own the runs of this one."""

    async def begins_alone(self) -> bool:
        """Return whether no other server is there that could begin the same run, as far as this one knows."""

    async def is_alone(self) -> bool:
        """Return whether no other server is there, of whom there could be news; False where that is not known."""

    async def begin(self, run: LoggedRun, request: bytes | None = None, max_of_user: int | None = None) -> LoggedRun:
        """Take a new run for this server; return it, or the one of that id that is there already.

        `request` is kept until the run has ended: what another server needs to go on with it. Raises `TooManyRuns`
        where `max_of_user` runs of its user are under way, at whichever server; who names no user is not counted.
        """

    async def withdraw(self, run_id: str) -> None:
        """Forget a run that was taken and did not begin."""

    async def load_request(self, run_id: str) -> bytes | None:
        """Return what was kept with a run that goes on, None where nothing was."""

    async def append(self, run: LoggedRun, frames: Sequence[LoggedFrame]) -> None:
        """Keep the frames that follow `run.last_seq`; one that is the last ends the run.

        Given once more after a failure, the same frames are kept once. Raises `RunLost` where another server owns the
        run by now, `UnknownRun` where the log of this server's own run is gone, for the store is another one.
        """

    async def find(self, run_ids: Collection[str]) -> dict[str, LoggedRun]:
        """Return those of some runs that there are, by their ids."""

    async def read(self, run_id: str, after: int, max_bytes: int) -> list[bytes]:
        """Return the frames after `after`, at least one if there is one, of about `max_bytes` together."""

    async def file(self, run_id: str, file_id: str) -> str | None:
        """Return a file of a run as a `data:` URL, None where there is none."""

    async def listen_to(self, run_ids: Collection[str], seconds: float) -> bool:
        """Let the owners of runs know that somebody listens to them here, for so long from now on.

        Return False where not all of them could be told, or have ended: it is to be said again soon.
        """

    async def is_listened_to(self, run_id: str) -> bool:
        """Return whether somebody listens to a run at another server."""

    async def cancel(self, run_id: str) -> None:
        """Ask the owner of a run, and whoever owns it after, for its end."""

    async def answer(self, run_id: str, question: str, answer: GivenAnswer) -> bool:
        """Keep the answer to a question; False where there is no such question, or it has one."""

    async def orders(self, run_ids: Collection[str]) -> dict[str, Orders]:
        """Return what was asked of some runs, by their ids; those of which nothing was are not among them."""

    async def take_over(self) -> list[LoggedRun]:
        """Own the runs of servers that are there no longer; return them, each in its new epoch."""

    async def hand_over(self, run: LoggedRun) -> None:
        """Let any server that is there take over a run of this one's, which is not at fault; raises `RunLost`."""

    async def close_calls(self, run_id: str, but: Collection[str] = (), waiting: Collection[str] = ()) -> None:
        """Mark the calls of a run that are open as interrupted, but for some, and those that a client runs.

        Those in `waiting` have not run: their user was being asked.
        """

    async def of_user(self, user_id: str) -> list[LoggedRun]:
        """Return the runs of a user, those that have ended included."""

    async def forget_user(self, user_id: str) -> int:
        """Forget the runs of a user with their frames and files; returns how many there were.

        What the owner of one that goes on still writes is not kept.
        """

    async def drop(self, ended_before_seconds: float, max_user_bytes: int) -> int:
        """Forget runs that ended longer ago than that, and a user's oldest beyond so many bytes; return how many."""


class Store(Protocol):
    """The store: all that a server keeps. `start` before anything else, `close` after everything."""

    async def start(self) -> None:
        """Open it, and bring it up to date; raises `StorageError` with words for the admin."""

    async def close(self) -> None:
        """Write what waits to be written, if it can be, and let go of everything."""

    async def check(self) -> None:
        """Raise `StorageError` where nothing can be written now."""

    def journal(self, turn: Turn, compact_results: CompactResults = "cited") -> ChatJournal:
        """Return the journal that a turn is written in as it happens."""

    def chats(self, user_id: object) -> Chats:
        """Return the chats of a user; of every user for `ANY_USER`."""

    def overview(self, user_id: object) -> Overview:
        """Return what a person looks through, of a user; of every user for `ANY_USER`."""

    def responses(self, user_id: str | None) -> Responses:
        """Return what a user's clients refer to."""

    def memories(self, user_id: str) -> Memories:
        """Return the memories of a user."""

    def profile(self, user_id: str) -> Profile:
        """Return the profile of a user."""

    def self_notes(self, agent_id: str, user_id: str) -> SelfNotes:
        """Return what an agent has written about itself for a user."""

    def past_chats(self, user_id: str, current_chat_id: str | None) -> PastChats:
        """Return a user's chats but for the one that is going on."""

    def records(self, namespace: str, user_id: str) -> Records:
        """Return what a skill keeps of a user. `namespace` is the skill's alone: its id, at most 64 characters.

        Raises `ValueError` for one that is longer or empty.
        """

    def audit(self) -> Audit:
        """Return the audit."""

    def usage(self, user_id: str) -> Usage:
        """Return what a user has used of the day; "" stands for all who named none."""

    def run_log(self, server_id: str) -> RunLog | None:
        """Return the log of runs, as that server writes it; None where it would be gone with the process anyway."""

    async def close_interrupted_calls(self) -> int:
        """Mark the calls that were open when the server last stopped; returns how many there were.

        Calls that a client runs stay open: their results may still come.
        """

    async def forget_own_chat(self, chat_id: str) -> None:
        """Forget a chat that no client has named, unless a response is kept in it."""

    def read_user(self, user_id: str) -> AsyncIterator[list[Line]]:
        """Return all that is kept of a user but the log of runs, piece by piece; each line says of what `kind` it is.

        Chats come first, each followed by its messages.
        """

    async def forget_user(self, user_id: str, key: str | None = None) -> Mapping[str, int]:
        """Forget all that is kept of a user but the log of runs; returns how much of each kind there was.

        The audit keeps its entries without arguments, and says that `key` had them forgotten. What they have used today
        stays until the day is over: else it would be given back.
        """

    async def drop_traces(self) -> None:
        """Empty what the database keeps for itself of what was deleted, where that can be done beside others."""

    async def drop_usage(self) -> int:
        """Forget what was used on days that are over; returns of how many users."""

    async def drop_chats(self, before: float) -> int:
        """Forget the chats that a client has named and nobody went on with since then; returns how many.

        A chat in which a run goes on stays.
        """

    async def drop_uncited(self, before: float) -> int:
        """Keep of results that ended before then only what is replayed; returns how many."""

    async def drop_own_chats(self, before: float) -> int:
        """Forget the chats that no client has named and nobody went on with since then; returns how many."""

    async def drop_response_items(self, before: float) -> int:
        """Forget the responses that were written before then; returns how many items they had."""


@runtime_checkable
class MeasuredStore(Protocol):
    """A store that tells how long it is waited for, and what waits."""

    def measure(self, on_access: Callable[[StoreAccess], None]) -> None:
        """Call `on_access` with every access from here on: a plain function in the event loop."""

    @property
    def queues(self) -> StoreQueues:
        """What waits at this moment."""
