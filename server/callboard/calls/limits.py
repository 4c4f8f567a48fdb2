"""The limits of one turn's tool calls."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callboard.errors import ToolError, ToolLimit

MAX_SAME_CALLS = 2
"""How many times in a row a tool may run with the same arguments."""

USED_UP = "Not run: this turn's tool calls are used up. Answer with the information that you have."


@dataclass(frozen=True, slots=True)
class Limits:
    """The most executions in a turn, and the time limit of a tool that sets none itself."""

    max_tool_calls: int = 20
    tool_timeout_seconds: float = 120.0

    def without(self, calls_made: int) -> "Limits":
        """Return the limits after this many calls."""
        return replace(self, max_tool_calls=max(0, self.max_tool_calls - calls_made))


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limits the executions of some tools, by their names, to `max_tool_calls` a turn in total.

    `name` is the name of the limit in the error for the model. `calls_made` is the number of calls that an earlier
    server has run in this turn.
    """

    name: str
    tools: frozenset[str]
    max_tool_calls: int
    calls_made: int = 0


class Budget:
    """Counts the tool calls of a turn against its limits.

    Rejected calls (unknown tool, invalid arguments, repeated call) are counted separately, up to the same number, so
    that a turn ends even if the model never makes a correct call.
    """

    def __init__(self, limits: Limits, allowances: Sequence[Allowance] = ()) -> None:
        self._executions = limits.max_tool_calls
        self._refusals = max(1, limits.max_tool_calls)
        self._allowances = allowances
        self._spent = Counter({allowance.name: allowance.calls_made for allowance in allowances})
        self._last_call = ""
        self._same_calls = 0

    def spend_execution(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Count one execution. Raises `ToolLimit` if the turn or the tool has none left, or the call is repeated."""
        if self._executions <= 0:
            self._executions = -1
            raise ToolLimit(USED_UP)
        call = json.dumps([name, arguments], sort_keys=True, default=str)
        self._same_calls = self._same_calls + 1 if call == self._last_call else 1
        self._last_call = call
        if self._same_calls > MAX_SAME_CALLS:
            raise ToolLimit(
                f"Not run: {name} was already called with these arguments, result above. Use it, or try something else."
            )
        for allowance in self._allowances:
            if name not in allowance.tools:
                continue
            if self._spent[allowance.name] >= allowance.max_tool_calls:
                raise ToolLimit(
                    f"Not run: this turn has no calls of '{allowance.name}' left (limit {allowance.max_tool_calls}). "
                    "Continue without it, or answer."
                )
            self._spent[allowance.name] += 1
        self._executions -= 1

    def refuse(self, error: ToolError) -> ToolError:
        """Count a rejected call. Return the error for the model: `error`, or a `ToolLimit` if there were too many."""
        self._refusals -= 1
        return error if self._refusals >= 0 else ToolLimit(USED_UP)

    @property
    def is_exceeded(self) -> bool:
        """Whether the model has asked for more calls than the limits allow."""
        return self._executions < 0 or self._refusals < 0
