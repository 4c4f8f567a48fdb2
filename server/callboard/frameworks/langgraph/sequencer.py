"""Sends the messages that a graph's models stream to the turn, one after the other, and withdraws those not kept.

Nodes that run in parallel stream at the same time. The message that began first is sent until it ends, and the others
wait. Only after a step is it known which messages the graph's state keeps; the text of the others is taken back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage

from callboard.frameworks.langgraph.hooks import Namespace
from callboard.frameworks.langgraph.messages import MessagePiece, to_pieces
from callboard.frameworks.turn import AdapterTurn


@dataclass(slots=True, eq=False)
class StreamedMessage:
    """A message of a model, or of a node, while it streams from the graph at `namespace`.

    `task` identifies the run of the node. `sent_count` is the number of pieces that the turn has been sent.
    """

    key: str
    namespace: Namespace
    task: str
    pieces: list[MessagePiece] = field(default_factory=list)
    sent_count: int = 0
    has_ended: bool = False
    message_id: str | None = None
    """The id of the same message in a graph's state."""
    kept_by: set[Namespace] = field(default_factory=set)
    """The graphs whose state has that message."""
    blocks: dict[int, str] = field(default_factory=dict)
    """The text of each content block so far, in the event protocol."""
    is_filtered: bool = False
    """A filter of the stream withheld text, which the graph's state may still have."""

    @property
    def text(self) -> str:
        """The text of all pieces."""
        return "".join(piece.text for piece in self.pieces)


class MessageSequencer:
    """Orders the streamed messages of a run by their beginning."""

    def __init__(self, turn: AdapterTurn) -> None:
        self._turn = turn
        self._messages: dict[str, StreamedMessage] = {}
        self._sent: list[tuple[StreamedMessage, MessagePiece]] = []
        self._sent_since = turn.call_events
        self._current: StreamedMessage | None = None
        self._last_withdrawn: StreamedMessage | None = None
        self._root_messages: Sequence[AIMessage] = ()

    def find(self, key: str, namespace: Namespace, task: str) -> StreamedMessage:
        """Return the message with that key, creating it if there is none."""
        return self._messages.setdefault(key, StreamedMessage(key, namespace, task))

    def add(self, streamed: StreamedMessage, piece: MessagePiece) -> None:
        """Add a piece to a message."""
        streamed.pieces.append(piece)
        self._flush()

    def end(self, streamed: StreamedMessage) -> None:
        """End a message, so that the next one is sent."""
        streamed.has_ended = True
        self._flush()

    def withdraw_failed(self, has_failed: Callable[[StreamedMessage], bool]) -> None:
        """Take back messages whose model failed and is asked again."""
        for streamed in [known for known in self._messages.values() if has_failed(known)]:
            self._withdraw(streamed)

    def reconcile(self, namespace: Namespace, state: Sequence[AIMessage], *, keeps_all: bool) -> None:
        """Compare the messages of a finished step with the messages in the state of the graph at `namespace`.

        Messages that the state does not have are taken back, unless `keeps_all` is set. So are messages of earlier
        steps that the state has lost since; those with another text are replaced. In both cases a guardrail has
        removed or rewritten the message.
        """
        finished = [streamed for streamed in self._messages.values() if streamed.namespace == namespace]
        for streamed in finished:
            streamed.has_ended = True
        for streamed in finished:
            if streamed.text and not self._is_kept(streamed, namespace, state) and not keeps_all:
                self._last_withdrawn = streamed
                self._withdraw(streamed)
        self._flush()
        for streamed in finished:
            self._messages.pop(streamed.key, None)
        self._reconcile_sent(namespace, state)
        if not namespace:
            self._root_messages = state

    def discard_answer(self) -> None:
        """Take back everything that can be taken back: a guardrail refused the answer, and the run ends."""
        self._messages.clear()
        self._turn.discard_answer()

    def withdraw_all(self) -> None:
        """Take back the messages of a node that failed, which no state has."""
        for streamed in list(self._messages.values()):
            self._withdraw(streamed)

    def _is_kept(self, streamed: StreamedMessage, namespace: Namespace, state: Sequence[AIMessage]) -> bool:
        message = next((kept for kept in state if kept.id == streamed.key), None)
        message = message or next((kept for kept in state if kept.text == streamed.text), None)
        if message is None:
            return False
        streamed.message_id = message.id
        streamed.kept_by.add(namespace)
        return True

    def _reconcile_sent(self, namespace: Namespace, state: Sequence[AIMessage], *, is_last: bool = False) -> None:
        """Compare the text since the last call with the messages in the state of the graph at `namespace`."""
        messages = {message.id: message for message in state}
        for streamed in {id(streamed): streamed for streamed, _ in self._revocable if streamed.message_id}.values():
            message = messages.get(streamed.message_id)
            if message is None and namespace in streamed.kept_by:
                self._resend(streamed, [])
            elif message is not None:
                streamed.kept_by.add(namespace)
                if message.text.strip() != streamed.text.strip() and (is_last or not streamed.is_filtered):
                    streamed.pieces = to_pieces(message)
                    self._resend(streamed, streamed.pieces)

    def restore_withdrawn(self) -> None:
        """Send the message that was withdrawn last again, for graphs that keep their answer outside of `messages`."""
        if self._last_withdrawn is not None:
            self._messages[self._last_withdrawn.key] = self._last_withdrawn
            self._last_withdrawn.sent_count = 0
        self.close()

    def close(self) -> None:
        """Send everything that still waits, at the end of the run."""
        for streamed in self._messages.values():
            streamed.has_ended = True
        self._flush()
        self._reconcile_sent((), self._root_messages, is_last=True)

    def _flush(self) -> None:
        for streamed in self._messages.values():
            for piece in streamed.pieces[streamed.sent_count :]:
                self._send(streamed, piece)
            streamed.sent_count = len(streamed.pieces)
            if not streamed.has_ended:
                return

    def _send(self, streamed: StreamedMessage, piece: MessagePiece) -> None:
        if self._sent_since != self._turn.call_events:
            # Text before the start or end of a call cannot be taken back.
            self._sent_since = self._turn.call_events
            self._sent.clear()
        if piece.text and streamed is not self._current:
            self._current = streamed
            self._turn.begin_paragraph()
        self._sent.append((streamed, piece))
        self._turn.add_reasoning(piece.reasoning)
        self._turn.add_text(piece.text)
        for source in piece.sources:
            self._turn.add_source(source)
        if piece.files:
            self._turn.add_files(piece.files)

    @property
    def _revocable(self) -> list[tuple[StreamedMessage, MessagePiece]]:
        """Return the pieces that can be taken back: those since the last start or end of a call."""
        return self._sent if self._sent_since == self._turn.call_events else []

    def _withdraw(self, streamed: StreamedMessage) -> None:
        del self._messages[streamed.key]
        self._resend(streamed, [])

    def _resend(self, changed: StreamedMessage, pieces: list[MessagePiece]) -> None:
        """Take back the revocable pieces and send them again, with `pieces` as the new pieces of `changed`."""
        sent = self._revocable
        if not any(streamed is changed for streamed, _ in sent):
            return
        place = next(index for index, (streamed, _) in enumerate(sent) if streamed is changed)
        others = [[pair for pair in part if pair[0] is not changed] for part in (sent[:place], sent[place:])]
        self._turn.rewind()
        self._sent = []
        self._current = None
        for streamed, piece in [*others[0], *((changed, piece) for piece in pieces), *others[1]]:
            self._send(streamed, piece)
