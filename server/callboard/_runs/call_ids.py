"""Tool call ids: unique within a chat and never empty, whatever a model or framework sends."""

from collections.abc import Iterable

from callboard._call_ids import new_call_id

MAX_ID_CHARS = 512


class CallIds:
    """The ids that a chat has seen; shared by the runs of that chat which are live at one time."""

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = set(seen)
        self._are_known = True

    def add(self, seen: Iterable[str]) -> None:
        """Add ids that the store knows."""
        self._seen.update(seen)

    def distrust(self) -> None:
        """Make every id a new one from here on: not all that the chat has seen is known."""
        self._are_known = False

    def claim(self, candidate: str) -> str:
        """Return `candidate` where nobody has it yet, else a new id."""
        usable = self._are_known and candidate.isprintable() and candidate.strip() and len(candidate) <= MAX_ID_CHARS
        call_id = candidate if usable and candidate not in self._seen else self._make()
        self._seen.add(call_id)
        return call_id

    def _make(self) -> str:
        while (call_id := new_call_id()) in self._seen:
            pass
        return call_id
