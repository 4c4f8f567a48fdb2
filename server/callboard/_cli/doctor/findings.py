"""Findings: what the doctor's checks say, each in one line that is safe to show; and what they are given."""

import argparse
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from callboard._agents import LoadedAgents
from callboard._settings import Settings
from callboard.models import LocalEndpoint

MOST_CHARS = 400

Verdict = Literal["well", "broken", "unset"]
_MARKS: Mapping[Verdict, str] = {"well": "✓", "broken": "✗", "unset": "–"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line; `unset` is not set up, or no fault. `advice` says what to do."""

    verdict: Verdict
    subject: str
    text: str
    advice: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether something has to be done."""
        return self.verdict == "broken"

    def line(self, hide: Callable[[str], str]) -> str:
        """Return the line as `hide` leaves it, without what would do something in a terminal."""
        text = f"{self.subject}: {self.text}"
        if len(text) > MOST_CHARS:
            text = f"{text[:MOST_CHARS]}…"
        shown = hide(f"{text} → {self.advice}" if self.advice else text)
        return f"{_MARKS[self.verdict]} {''.join(char if char.isprintable() else ' ' for char in shown)}"


@dataclass(frozen=True, slots=True)
class Context:
    """The context that every check is given.

    `variables` are the environment's, without settings of skills that are wrong; `options` are the command's, and
    `endpoints` are where a model is looked for.
    """

    settings: Settings = field(repr=False)
    variables: Mapping[str, str] = field(repr=False)
    loaded: LoadedAgents
    options: argparse.Namespace = field(repr=False)
    endpoints: Sequence[LocalEndpoint]

    @property
    def timeout_seconds(self) -> float:
        """The bound of each step that waits."""
        timeout: float = self.options.timeout
        return timeout


Check = Callable[[Context], AsyncIterator[Finding]]


def well(subject: str, text: str) -> Finding:
    """Return what is as it should be."""
    return Finding("well", subject, text)


def broken(subject: str, text: object, advice: str = "") -> Finding:
    """Return what is broken, and what to do; errors of ours say that themselves."""
    return Finding("broken", subject, str(text), advice)


def unset(subject: str, text: str, advice: str = "") -> Finding:
    """Return what is not set up, or no fault."""
    return Finding("unset", subject, text, advice)
