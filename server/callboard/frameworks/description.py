"""What an agent of another framework says of itself before it runs: as far as its objects tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class DescribedTool:
    """A tool; `parameters` is its JSON schema, None where it is known during a run alone."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    asks_first: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of an agent, None where it is not. `notes` say what else there is, and what cannot be known."""

    instructions: str | None = None
    model: str | None = None
    tools: Sequence[DescribedTool] = ()
    notes: Sequence[str] = field(default_factory=tuple)


MADE_PER_RUN = Description(notes=("A function makes this agent for each run: before one nothing of it is known.",))
