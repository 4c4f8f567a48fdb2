"""The values of labels. Each label has so many and no more, whatever models, clients and tools invent."""

from collections.abc import Iterable

from callboard import errors, observers

OTHER = "other"
"""The label of whatever has no label of its own."""
OK = "ok"
STOPPED = "stopped"

MOST_LEARNT = 100
"""The most names of tools, and of models, that get a label though nobody registered them."""


class Names:
    """The names that are labels: those that are registered, and a few that turn out to be real."""

    def __init__(self, registered: Iterable[str] = ()) -> None:
        self.registered = frozenset(registered)
        self._learnt: set[str] = set()

    def label(self, name: str, *, is_real: bool = False) -> str:
        """Return the label for a name.

        `is_real`: there is such a tool, or such a model, for it has just done its work. Others may be invented.
        """
        if name in self.registered or name in self._learnt:
            return name
        if is_real and name and len(self._learnt) < MOST_LEARNT:
            self._learnt.add(name)
            return name
        return OTHER


def name_outcome(error: str | None) -> str:
    """Return the outcome of a request to a model by the exception that it ended with."""
    if error is None:
        return OK
    return STOPPED if error in observers.STOPPED else _MODEL_CODES.get(error, OTHER)


def _codes_of(base: type[errors.CallboardError]) -> dict[str, str]:
    """Return the codes of a class of ours and of all below it, by their names; those of others are no labels."""
    found = {base.__name__: base.code} if base.__module__ == errors.__name__ else {}
    for kind in base.__subclasses__():
        found |= _codes_of(kind)
    return found


_MODEL_CODES = _codes_of(errors.ModelError)
CALL_CODES = frozenset({*_codes_of(errors.ToolError).values(), "interrupted"})
ERROR_CODES = frozenset({*_codes_of(errors.CallboardError).values(), "interrupted"})
