"""What tools limit for themselves over a whole turn, such as how many devices it may change."""

from collections.abc import Collection


class Quotas:
    """One turn's, shared by all its calls; reached by `ToolContext.quotas`."""

    def __init__(self) -> None:
        self._taken: dict[str, set[str]] = {}

    def take(self, quota: str, things: Collection[str], most: int) -> bool:
        """Counts `things`, each once a turn; False where they would be more than `most`, and then counts none."""
        taken = self._taken.setdefault(quota, set())
        if len(taken.union(things)) > most:
            return False
        taken.update(things)
        return True
