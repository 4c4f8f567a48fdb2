"""How tool calls without a result ended, by the `code` of `ToolCallError`."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallEnding:
    """The end of a call without a result.

    `state` is its name in the database and in queries, `label` its name for people. `words` explain it to people; empty
    if the error's message does. `is_failure`: the call counts as an error of its tool. `has_run`: the tool was started,
    so the call has a duration.
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
    "not_asked": CallEnding("not_asked", "not asked", "Not run: the question could not be asked.", has_run=False),
    "not_answered": CallEnding("not_answered", "not answered", "Not run: no valid answer came.", has_run=False),
    "cancelled": CallEnding("stopped", "stopped"),
    "timeout": CallEnding("timed_out", "timed out", is_failure=True),
    "limit": CallEnding("error", "over the limit", "Error: over the limit of calls.", is_failure=True, has_run=False),
}


def find_ending(code: str) -> CallEnding:
    """Return the ending for the code of an error."""
    return ENDINGS.get(code, FAILED)


def format_ending(code: str, error: str) -> str:
    """Return the text of an error for people; `error` is the text for the model."""
    ending = find_ending(code)
    if ending.words:
        return ending.words
    if not ending.is_failure:
        return error.removeprefix("Error: ")
    return error if error.startswith("Error:") else f"Error: {error}"
