"""The values of labels. Their number is bounded, although models, clients and tools may invent names."""

from collections.abc import Iterable

from callboard.errors import CallboardError, ModelError, ToolError
from callboard.observers import STOPPED as STOPPED_ERRORS

OTHER = "other"
"""The label of all names without a label of their own."""
OK = "ok"
STOPPED = "stopped"

MAX_UNREGISTERED = 100
"""Number of tools, and of models, that get a label without being registered."""


class Names:
    """The names that are labels: registered ones, and up to `MAX_UNREGISTERED` others that exist."""

    def __init__(self, registered: Iterable[str] = ()) -> None:
        self.registered = frozenset(registered)
        self._unregistered: set[str] = set()

    def label(self, name: str, *, is_real: bool = False) -> str:
        """Return the label for a name.

        `is_real`: a tool or model of this name exists, because it has just returned a result. Other names may be
        invented.
        """
        if name in self.registered or name in self._unregistered:
            return name
        if is_real and name and len(self._unregistered) < MAX_UNREGISTERED:
            self._unregistered.add(name)
            return name
        return OTHER


def name_outcome(error: str | None) -> str:
    """Return the outcome of a request to a model; `error` is the class name of the exception that ended it."""
    if error is None:
        return OK
    return STOPPED if error in STOPPED_ERRORS else _MODEL_CODES.get(error, OTHER)


def _codes_of(base: type[CallboardError]) -> dict[str, str]:
    """Return the codes of `base` and its subclasses by class name, without classes outside of `callboard.errors`."""
    found = {base.__name__: base.code} if base.__module__ == CallboardError.__module__ else {}
    for kind in base.__subclasses__():
        found |= _codes_of(kind)
    return found


_MODEL_CODES = _codes_of(ModelError)
CALL_CODES = frozenset({*_codes_of(ToolError).values(), "interrupted"})
ERROR_CODES = frozenset({*_codes_of(CallboardError).values(), "interrupted"})
