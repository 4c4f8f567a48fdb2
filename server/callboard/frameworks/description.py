"""The description of a framework's agent that can be read from its objects before it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class DescribedTool:
    """A tool of an agent.

    `parameters` is its JSON schema, None if it is known only during a run. `asks_first`: calls may need the user's
    approval.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    asks_first: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """The facts known about an agent before it runs; None for those that are unknown.

    `notes` are sentences for people: further facts, and facts that are known only during a run.
    """

    instructions: str | None = None
    model: str | None = None
    tools: Sequence[DescribedTool] = ()
    notes: Sequence[str] = field(default_factory=tuple)


MADE_PER_RUN = Description(
    notes=("A function makes this agent for each run, so nothing is known about it before one.",)
)
