"""The words of a graph's models in the order in which they are told, and which of them are taken back.

Nodes that run side by side speak at once, so whoever began first has the floor: it is heard to the end, and the
others wait. Only afterwards is it known what a graph keeps of its models' words: what it does not is taken back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage

from callboard.frameworks.langgraph.hooks import Namespace
from callboard.frameworks.langgraph.messages import Words, words_of
from callboard.frameworks.turn import Turn


@dataclass(slots=True, eq=False)
class Speech:
    """The words of one model in one answer, or of a node in one message, in the graph at `namespace`.

    `task` is the run of the node, `told` how many of its words the turn has been told.
    """

    key: str
    namespace: Namespace
    task: str
    words: list[Words] = field(default_factory=list)
    told: int = 0
    ended: bool = False
    message_id: str | None = None
    """The id of the message by which a graph has kept it."""
    kept_by: set[Namespace] = field(default_factory=set)
    """The graphs whose state has that message."""
    blocks: dict[int, str] = field(default_factory=dict)
    """The text of each block of an answer in the event protocol, as far as it has come."""
    is_filtered: bool = False
    """A filter of the stream held text back. The graph's state may still have what the filter hides."""

    @property
    def text(self) -> str:
        """All that it says."""
        return "".join(words.text for words in self.words)


class Floor:
    """The speeches of a run, in the order in which they began."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._speeches: dict[str, Speech] = {}
        self._told: list[tuple[Speech, Words]] = []
        self._told_at = turn.call_events
        self._speaker: Speech | None = None
        self._last_unkept: Speech | None = None
        self._kept: Sequence[AIMessage] = ()

    def find(self, key: str, namespace: Namespace, task: str) -> Speech:
        """Return the speech of that key; it begins where there is none yet."""
        return self._speeches.setdefault(key, Speech(key, namespace, task))

    def add(self, speech: Speech, words: Words) -> None:
        """Add words to a speech."""
        speech.words.append(words)
        self._tell()

    def end(self, speech: Speech) -> None:
        """End a speech; the next has the floor."""
        speech.ended = True
        self._tell()

    def drop(self, has_failed: Callable[[Speech], bool]) -> None:
        """Take back what has failed and is said anew."""
        for speech in [one for one in self._speeches.values() if has_failed(one)]:
            self._forget(speech)

    def settle(self, namespace: Namespace, kept: Sequence[AIMessage], *, keeps_all: bool) -> None:
        """Take back what a step of the graph at `namespace`, which is over, has not kept of what was said.

        What an earlier step has kept is taken back too, where the state has lost it since, or has other words in its
        place: a guard has removed or rewritten the message. `keeps_all`: what no message has is said all the same.
        """
        over = [speech for speech in self._speeches.values() if speech.namespace == namespace]
        for speech in over:
            speech.ended = True
        for speech in over:
            if speech.text and not self._is_kept(speech, namespace, kept) and not keeps_all:
                self._last_unkept = speech
                self._forget(speech)
        self._tell()
        for speech in over:
            self._speeches.pop(speech.key, None)
        self._check(namespace, kept)
        if not namespace:
            self._kept = kept

    def refuse(self) -> None:
        """Take back all that can be: a guard has refused it, and the run ends."""
        self._speeches.clear()
        self._turn.refuse()

    def drop_unsettled(self) -> None:
        """Take back what the node that has failed said: no state has it."""
        for speech in list(self._speeches.values()):
            self._forget(speech)

    def _is_kept(self, speech: Speech, namespace: Namespace, kept: Sequence[AIMessage]) -> bool:
        message = next((one for one in kept if one.id == speech.key), None)
        message = message or next((one for one in kept if one.text == speech.text), None)
        if message is None:
            return False
        speech.message_id = message.id
        speech.kept_by.add(namespace)
        return True

    def _check(self, namespace: Namespace, kept: Sequence[AIMessage], *, is_last: bool = False) -> None:
        """Compare what was said since the last call with the state of the graph at `namespace`."""
        messages = {message.id: message for message in kept}
        for speech in {id(speech): speech for speech, _ in self._reachable if speech.message_id}.values():
            message = messages.get(speech.message_id)
            if message is None and namespace in speech.kept_by:
                self._retell(speech, [])
            elif message is not None:
                speech.kept_by.add(namespace)
                if message.text.strip() != speech.text.strip() and (is_last or not speech.is_filtered):
                    speech.words = words_of(message)
                    self._retell(speech, speech.words)

    def recall(self) -> None:
        """Say what was taken back last, where a graph keeps no messages: some have their answer elsewhere."""
        if self._last_unkept is not None:
            self._speeches[self._last_unkept.key] = self._last_unkept
            self._last_unkept.told = 0
        self.close()

    def close(self) -> None:
        """Say what still waits: the run is over."""
        for speech in self._speeches.values():
            speech.ended = True
        self._tell()
        self._check((), self._kept, is_last=True)

    def _tell(self) -> None:
        for speech in self._speeches.values():
            for words in speech.words[speech.told :]:
                self._say(speech, words)
            speech.told = len(speech.words)
            if not speech.ended:
                return

    def _say(self, speech: Speech, words: Words) -> None:
        if self._told_at != self._turn.call_events:
            # Nothing before a call's start or end can be taken back.
            self._told_at = self._turn.call_events
            self._told.clear()
        if words.text and speech is not self._speaker:
            self._speaker = speech
            self._turn.begin_paragraph()
        self._told.append((speech, words))
        self._turn.think(words.reasoning)
        self._turn.say(words.text)
        for source in words.sources:
            self._turn.cite(source)
        if words.files:
            self._turn.show_files(words.files)

    @property
    def _reachable(self) -> list[tuple[Speech, Words]]:
        """Return what can be taken back: what was said since the last start or end of a call."""
        return self._told if self._told_at == self._turn.call_events else []

    def _forget(self, speech: Speech) -> None:
        del self._speeches[speech.key]
        self._retell(speech, [])

    def _retell(self, changed: Speech, words: list[Words]) -> None:
        """Take back what can be, and say it again with these words of `changed`: none takes it back for good."""
        told = self._reachable
        if not any(speech is changed for speech, _ in told):
            return
        place = next(index for index, (speech, _) in enumerate(told) if speech is changed)
        others = [[one for one in part if one[0] is not changed] for part in (told[:place], told[place:])]
        self._turn.rewind()
        self._told = []
        self._speaker = None
        for speech, piece in [*others[0], *((changed, one) for one in words), *others[1]]:
            self._say(speech, piece)
