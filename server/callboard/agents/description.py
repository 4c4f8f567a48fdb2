"""The description of an agent for people, before it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class DescribedTool:
    """A tool of an agent.

    `parameters`: the JSON schema of the arguments; None if it is known only during a run. `asks_first`: whether calls
    may need the user's approval.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    asks_first: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """The facts known about an agent before it runs; a field is None if its fact is unknown.

    `notes`: other facts, as sentences for people; they also say which facts are known only during a run.
    """

    instructions: str | None = None
    model: str | None = None
    tools: Sequence[DescribedTool] = ()
    notes: Sequence[str] = ()


@runtime_checkable
class DescribedAgent(Protocol):
    """An agent that describes itself to people, for example in the inspector."""

    def describe(self) -> Description:
        """Return the facts known about the agent before it runs."""
        ...
