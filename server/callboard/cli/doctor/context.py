"""What every check is given."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from callboard.agents import LoadedAgents
from callboard.cli.doctor.findings import Finding
from callboard.models import LocalEndpoint
from callboard.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """`timeout_seconds` bounds each step that waits; `endpoints` are where a model is looked for."""

    settings: Settings = field(repr=False)
    loaded: LoadedAgents
    timeout_seconds: float
    endpoints: Sequence[LocalEndpoint]


Check = Callable[[Context], AsyncIterator[Finding]]
