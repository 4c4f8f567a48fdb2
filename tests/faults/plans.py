"""What the model does in a turn: all of it follows from the question, whichever server asks and however often."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Self
from uuid import uuid4

from callboard.calls.approval import REFUSED, REFUSED_IN_INSPECTOR
from callboard.storage.rows import INTERRUPTED_CALL
from tests.fakes.openai_server import Answer, Body, Refusal, call, chunks, finish, text

READING = ("look",)
SLOW = ("build", "print_out", "look", "refund")
AGENTS = ("callboard", "pydantic_ai", "langgraph", "openai_agents", "agno")
ASKING = ("refund", "ship")
"""The agent asks about the first, the server about the other (`CALLBOARD_CONFIRM_TOOLS`)."""
TOOLS = ("sell", "build", "print_out", "look", *ASKING, *ASKING)
WAYS = ("at once", "later", "later in the inspector", "later at two places")
"""How the user answers a question: while it is open, or when nobody could be asked and its call waits.

At two places the answers are opposite: the first counts.
"""
UNKNOWN = f"Error: {INTERRUPTED_CALL}"
REFUSALS = (REFUSED, REFUSED_IN_INSPECTOR)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that the model makes; `order` is what it is to bring about, once, unless it `may_repeat`.

    `way` is how the user answers the question about it; "" where there is none.
    """

    tool: str
    order: str
    seconds: float
    is_agreed: bool
    way: str

    @property
    def is_refused(self) -> bool:
        return self.way in WAYS[:-1] and not self.is_agreed

    @property
    def is_of_framework(self) -> bool:
        return not self.order.startswith(f"{AGENTS[0]}-")

    @property
    def may_repeat(self) -> bool:
        """Whether its tool changes nothing, which only `Agent` knows."""
        return self.tool in READING and not self.is_of_framework

    @property
    def arguments(self) -> dict[str, Any]:
        return {"order": self.order} | ({"seconds": self.seconds} if self.tool in SLOW else {})

    @property
    def result(self) -> str:
        return f"{self.tool} {self.order}: done"

    def may_end_with(self, output: str) -> Literal["done", "unknown", "refused", ""]:
        """How a result of it is to be understood; "" where it must not be."""
        # LangGraph's middleware puts words of its own before the refusal.
        if output.endswith(REFUSALS):
            return "refused" if self.is_refused or self.way == WAYS[-1] else ""
        if self.is_refused:
            # A framework asks later, perhaps only after the calls beside it: until then it is taken to have begun.
            return "unknown" if output == UNKNOWN and self.is_of_framework else ""
        if output == self.result:
            return "done"
        return "unknown" if output == UNKNOWN and not self.may_repeat else ""


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """An answer of the model that calls tools: the pieces of its text, and the calls."""

    pieces: Sequence[str]
    calls: Sequence[PlannedCall]


@dataclass(frozen=True, slots=True)
class Plan:
    """A turn: its rounds, and the pieces of the last text, after which come the results.

    `waits` says whether its calls may wait for their approval.
    """

    question: str
    waits: bool
    rounds: Sequence[PlannedRound]
    last_pieces: Sequence[str]
    pause_seconds: float

    @classmethod
    def of(cls, question: str) -> Self:
        """Make the plan that follows from a question, which begins with the name of the agent."""
        chance = random.Random(question)
        waits = chance.random() < 0.7
        rounds = []
        for round_index in range(chance.choice((1, 1, 2, 2, 3))):
            calls = []
            for place in range(chance.choice((1, 1, 2, 3))):
                tool = chance.choice(TOOLS)
                calls.append(
                    PlannedCall(
                        tool,
                        f"{question}/{round_index}.{place}",
                        round(chance.choice((0, 0.1, 0.5, 1.5)), 1),
                        chance.random() < 0.8,
                        chance.choice(WAYS if waits else WAYS[:1]) if tool in ASKING else "",
                    )
                )
            rounds.append(PlannedRound(_words(chance, 6), calls))
        return cls(question, waits, rounds, _words(chance, 12), chance.choice((0.0, 0.02, 0.1)))

    @property
    def calls(self) -> dict[str, PlannedCall]:
        """All its calls, by their orders."""
        return {call.order: call for one in self.rounds for call in one.calls}

    def last_text(self, results: Mapping[str, str]) -> list[str]:
        """The pieces of what the model says at the end, told of these results of its calls, by their orders."""
        return [
            *self.last_pieces,
            *(f"{order} {call.may_end_with(results[order])}\n" for order, call in self.calls.items()),
        ]

    def whole_text(self, results: Mapping[str, str]) -> str:
        """What the user reads in the end."""
        return "".join([*(piece for one in self.rounds for piece in one.pieces), *self.last_text(results)])

    def answer(self, results: Mapping[str, str]) -> Answer:
        """What the model streams next; its calls have ids that are new each time that it is asked.

        A round of which it is told in part it goes on with: what it called beside that was never begun.
        """
        for planned in self.rounds:
            missing = [call for call in planned.calls if call.order not in results]
            if missing:
                pieces = planned.pieces if len(missing) == len(planned.calls) else ()
                calls = [
                    call(one.tool, json.dumps(one.arguments), index=index, call_id=f"call_{uuid4().hex}")
                    for index, one in enumerate(missing)
                ]
                return chunks(*map(text, pieces), *calls, finish("tool_calls"), pause_seconds=self.pause_seconds)
        return chunks(*map(text, self.last_text(results)), finish("stop"), pause_seconds=self.pause_seconds)

    def find_wrong(self, said: str, results: Mapping[str, str]) -> str:
        """Say what of a turn is not as it was planned, as far as the model is told of it; "" where all is."""
        for order, output in results.items():
            if order not in self.calls or not self.calls[order].may_end_with(output):
                return f"{order} ended with {output!r}"
        begun = [one for one in self.rounds if any(call.order in results for call in one.calls)]
        wanted = "".join(piece for one in begun for piece in one.pieces)
        return "" if said == wanted else f"it said {said!r} and not {wanted!r}"


class PlanModel:
    """The script of the model's endpoint.

    `wrong` is what it was told and should not have been, `in_parts` how often it was told of a round as of several.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.in_parts = 0

    def __call__(self, body: Body) -> Answer:
        messages = body["messages"]
        asked = max(place for place, one in enumerate(messages) if one["role"] == "user")
        turn = messages[asked + 1 :]
        # After an answer that was given up and says nothing, its question stands above this one in one message.
        plan = Plan.of(_content(messages[asked]).splitlines()[-1])
        said = "".join(_content(one) for one in turn if one["role"] == "assistant")
        self.in_parts += any(one["role"] == other["role"] == "assistant" for one, other in pairwise(turn))
        calls = [call for one in turn for call in one.get("tool_calls") or ()]
        outputs = {one["tool_call_id"]: _content(one) for one in turn if one["role"] == "tool"}
        results = {json.loads(one["function"]["arguments"])["order"]: outputs.get(one["id"], "") for one in calls}
        wrong = "a call is told twice" if len(results) < len(calls) else plan.find_wrong(said, results)
        if wrong:
            self.wrong.append(f"{plan.question}: the model is told of a turn that was not so: {wrong}")
            return Refusal(400, "that is not how it was")
        return plan.answer(results)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _words(chance: random.Random, most: int) -> list[str]:
    return [f"{chance.choice(('one', 'two', 'three', 'four'))} " for _ in range(chance.randint(1, most))]
