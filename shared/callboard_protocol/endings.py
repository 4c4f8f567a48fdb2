"""The endings of calls that gave no result, by the `code` of `ToolCallError`."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ENDINGS", "FAILED", "CallEnding", "find_ending", "format_ending"]


@dataclass(frozen=True, slots=True)
class CallEnding:
    """How a call ended that gave no result.

    `state` is the name in stores and queries, `label` the one that people read. `words` tell a person what happened;
    empty if the error's own words do. `is_failure`: the call counts as an error of its tool. `has_run`: the tool was
    started, so the call has a duration.
    """

    state: str
    label: str
    words: str = ""
    is_failure: bool = False
    has_run: bool = True


FAILED = CallEnding("error", "failed", is_failure=True)
"""The ending of all codes that are not in `ENDINGS`."""

ENDINGS: Mapping[str, CallEnding] = {
    "denied": CallEnding("declined", "declined", "Declined: it was not run.", has_run=False),
    "not_asked": CallEnding("not_asked", "not asked", "Not run: nobody could be asked.", has_run=False),
    "not_answered": CallEnding("not_answered", "not answered", "Not run: no answer came in time.", has_run=False),
    "cancelled": CallEnding("stopped", "stopped"),
    "timeout": CallEnding("timed_out", "timed out", is_failure=True),
}


def find_ending(code: str) -> CallEnding:
    """Return the ending that an error's code stands for."""
    return ENDINGS.get(code, FAILED)


def format_ending(code: str, error: str) -> str:
    """Return an error as a person reads it; `error` is what the model is told."""
    ending = find_ending(code)
    if ending.words:
        return ending.words
    if not ending.is_failure:
        return error.removeprefix("Error: ")
    return error if error.startswith("Error:") else f"Error: {error}"
