"""What becomes of a function under `@tool`, and what is refused when a tool is defined."""

import enum
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal, assert_type

import pytest
from pydantic import BaseModel, Field

from callboard.calls import StatusChannel, Tool, ToolContext, tool
from callboard.calls.executor import check_arguments
from callboard.errors import AgentError, InvalidArguments
from callboard.skills import Skill
from tests.calls.calling import run_tool


def context_of(called: Tool) -> ToolContext:
    return ToolContext("call_1", called.name, None, None, StatusChannel(lambda _: None))


class Seat(BaseModel):
    row: str
    number: int


class Tier(enum.Enum):
    STALLS = "stalls"
    BALCONY = "balcony"


@tool
def book(
    play: str,
    seats: list[Seat],
    on: date,
    context: ToolContext,
    tier: Tier = Tier.STALLS,
    payment: Literal["card", "cash"] = "card",
    tip: Annotated[float, Field(ge=0, description="In euros.")] = 0,
    note: str | None = None,
) -> str:
    """Books seats for a play.

    Asks the box office and waits for its answer.

    Args:
        play: The play's title.
        seats: Which seats.
        on: The day.
    """
    return f"{play} {seats[0].number + 1} {on.year} {tier.name} {context.tool_call_id}"


def test_the_schema_comes_from_the_signature_and_the_descriptions_from_the_docstring() -> None:
    assert book.name == "book"
    assert book.description == "Books seats for a play.\n\nAsks the box office and waits for its answer."
    parameters = book.parameters
    assert list(parameters["properties"]) == ["play", "seats", "on", "tier", "payment", "tip", "note"]
    assert parameters["required"] == ["play", "seats", "on"]
    assert parameters["additionalProperties"] is False
    properties = parameters["properties"]
    assert properties["play"] == {"type": "string", "description": "The play's title."}
    assert properties["on"] == {"type": "string", "format": "date", "description": "The day."}
    assert properties["tip"] == {"type": "number", "minimum": 0, "default": 0, "description": "In euros."}
    assert properties["payment"] == {"type": "string", "enum": ["card", "cash"], "default": "card"}
    assert json.loads(json.dumps(book.schema()))["function"]["name"] == "book"


def test_arguments_arrive_as_their_types_and_defaults_are_filled_in() -> None:
    arguments = check_arguments(book, {"play": "Hamlet", "seats": [{"row": "A", "number": "7"}], "on": "2026-11-30"})
    assert arguments["seats"] == [Seat(row="A", number=7)]
    assert arguments["on"] == date(2026, 11, 30)
    assert arguments["tier"] is Tier.STALLS
    assert "context" not in arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "argument 'play' is missing; argument 'seats' is missing; argument 'on' is missing"),
        ({"play": "x", "seats": [{"row": "A"}], "on": "2026-01-01"}, "argument 'seats.0.number' is missing"),
        ({"play": "x", "seats": [], "on": "soon"}, "argument 'on': Input should be a valid date"),
        ({"play": "x", "seats": [], "on": "2026-01-01", "colour": 1}, "there is no argument 'colour'"),
        ({"play": 5, "seats": [], "on": "2026-01-01"}, "argument 'play': Input should be a valid string, not 5"),
    ],
)
def test_invalid_arguments_are_listed_one_by_one(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArguments) as raised:
        check_arguments(book, arguments)
    assert told in str(raised.value)


def test_empty_optional_argument_counts_as_left_out() -> None:
    @tool
    def look(
        word: str,
        zone: str = "UTC",
        note: str | None = None,
        kind: Literal["a", "b"] = "a",
        limit: Annotated[int, Field(ge=1)] = 10,
        offset: int = 5,
        only: list[str] | None = None,
        tags: list[str] = ["x"],  # noqa: B006 - only read
        deep: bool = True,
    ) -> None:
        """Looks."""

    filled = {"zone": " ", "note": "", "kind": "", "limit": 0, "offset": 0, "only": [], "tags": [], "deep": False}
    defaults = {"zone": "UTC", "note": None, "kind": "a", "limit": 10, "only": None}
    assert check_arguments(look, {"word": "", **filled}) == {"word": "", **filled, **defaults}
    nulls = dict.fromkeys(filled)
    assert check_arguments(look, {"word": "w", **nulls})["limit"] == 10
    with pytest.raises(InvalidArguments, match=r"argument 'word': .* not null"):
        check_arguments(look, {"word": None, "limit": 0})


def test_a_decorated_function_can_still_be_called_as_one() -> None:
    @tool(name="plus", timeout_seconds=3)
    def add(a: int, b: int = 1) -> int:
        """Adds.

        :param a: The first.
        """
        return a + b

    assert (add.name, add.timeout_seconds, add(2, b=3)) == ("plus", 3, 5)
    assert add.parameters["properties"]["a"]["description"] == "The first."


class Desk:
    """Tools that share what an instance holds."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    @tool(name="desk_write", read_only=True)
    async def write(self, context: ToolContext, text: str, times: int = 1) -> str:
        """Writes a text.

        Args:
            text: What to write.
        """
        return f"{self.owner}: {text * times}"


async def test_method_becomes_a_tool_of_its_instance() -> None:
    anns = Desk("ann").write
    bobs = Desk("bob").write
    assert list(anns.parameters["properties"]) == ["text", "times"]
    assert (anns.name, anns.read_only, anns.context_parameter) == ("desk_write", True, "context")
    results = [await run_tool(one, context_of(one), text="x") for one in (anns, bobs)]
    assert [result.text for result in results] == ["ann: x", "bob: x"]
    assert await anns(context_of(anns), "y", times=2) == "ann: yy"


def test_skill_refuses_a_method_without_an_instance() -> None:
    with pytest.raises(AgentError, match="lists the method 'desk_write': take it from an instance"):
        Skill("desk", "Writes.", tools=(Desk.write,))


async def test_tool_has_the_types_of_its_function() -> None:
    """Most of it is for mypy, which reports each `ignore` below that is not needed."""

    @tool
    def double(x: int) -> str:
        """Double a number."""
        return str(2 * x)

    typed: Tool[[int], str] = double
    anything: Tool = double
    assert_type(typed(1), str)
    assert_type(Desk("ann").write(context_of(anything), "x"), Coroutine[Any, Any, str]).close()
    double("1")  # type: ignore[arg-type] # the mistake under test


def test_parameters_may_have_names_that_pydantic_reserves() -> None:
    @tool
    def odd(json: str, _hidden: int, model_config: str, schema: str = "s") -> str:
        """Odd names."""
        return json

    assert odd.parameters["required"] == ["json", "_hidden", "model_config"]
    arguments = check_arguments(odd, {"json": "{}", "_hidden": 1, "model_config": "m"})
    assert arguments == {"json": "{}", "_hidden": 1, "model_config": "m", "schema": "s"}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("f(a, b: int)", "'a' has no type annotation"),
        ("f(*args: int)", r"'\*args: int' cannot be given by name"),
        ("f(a: int, /)", "cannot be given by name"),
        ("f(a: 'NoSuchThing')", "NoSuchThing"),
        ("f(a: Callable[[int], int])", "JSON"),
        ("f(a: int = Field(ge=1))", "Annotated"),
        ("übung(a: int)", "cannot be named"),
        ("f(a: int, __user__: dict[str, object])", "'__user__'.*ToolContext"),
    ],
)
def test_function_that_no_model_can_call_is_refused_at_its_definition(written: str, told: str) -> None:
    made: dict[str, Any] = {"Callable": Callable, "Field": Field}
    exec(f"def {written} -> str:\n    'Documented.'", made)
    with pytest.raises(AgentError, match=told):
        tool(made[written.partition("(")[0]])


def test_function_without_a_docstring_is_refused_with_its_place() -> None:
    def undocumented(a: int) -> str:
        return str(a)

    with pytest.raises(AgentError, match=r"test_definition\.py:\d+.* no docstring"):
        tool(undocumented)


LOGIN = {
    "type": "object",
    "properties": {"login": {"type": "object", "properties": {"pin": {"type": "string"}}}},
}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"description": " "}, "no description"),
        ({"name": "x" * 65}, "cannot be named"),
        ({"name": "a.b"}, "cannot be named"),
        ({"parameters": {}}, "of type 'object'"),
        ({"parameters": {"type": "object", "properties": {"a": {"type": "strnig"}}}}, "no JSON schema"),
        ({"timeout_seconds": 0}, "above 0"),
        ({"show": "html"}, "cannot show its result as 'html'"),
        ({"parameters": LOGIN, "secrets": ("pin",)}, "the secret 'pin', a field inside an argument"),
        ({"function": lambda __event_emitter__: ""}, "'__event_emitter__'.*ToolContext"),
    ],
)
def test_invalid_hand_written_tool_is_refused(fields: dict[str, Any], told: str) -> None:
    whole: dict[str, Any] = {"name": "t", "description": "d", "parameters": {"type": "object"}, "function": print}
    with pytest.raises(AgentError, match=told):
        Tool(**{**whole, **fields})


def test_hand_written_schema_is_sent_to_the_model_and_checks_the_arguments() -> None:
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"],
    }
    forecast = Tool("forecast", "Tells the weather.", parameters, lambda city, days=1: city * days)
    assert forecast.schema()["function"]["parameters"] == parameters
    assert check_arguments(forecast, {"city": "Rome", "more": 1}) == {"city": "Rome", "more": 1}
    with pytest.raises(InvalidArguments, match="'city' is a required property"):
        check_arguments(forecast, {})
    with pytest.raises(InvalidArguments, match="argument 'days': 0 is less than the minimum of 1"):
        check_arguments(forecast, {"city": "Rome", "days": 0})


def test_fingerprint_is_the_same_everywhere_and_changes_with_all_that_is_shown() -> None:
    fields = {"to": {"type": "string", "enum": ["ä", "b"]}, "amount": {"type": "number", "minimum": 0.5}}
    schema = {"type": "object", "properties": fields, "required": ["to"]}
    pay: Tool = Tool("pay", "Pays.", schema, lambda **_: "paid")
    # Written down, because the next start of the server and other servers have to find the same.
    assert pay.fingerprint == "bebc5cb849ec138269d6e4a82bffc9d62aaaa40de2fd5d74cbb9a282e102a0f6"
    reordered = {name: schema[name] for name in reversed(schema)} | {"properties": dict(reversed(fields.items()))}
    assert replace(pay, parameters=reordered, function=print, timeout_seconds=5).fingerprint == pay.fingerprint
    changes: list[dict[str, Any]] = [
        {"name": "pay_twice"},
        {"description": "Pays twice."},
        {"title": "Pay"},
        {"origin": "bank"},
        {"parameters": {**schema, "required": []}},
    ]
    assert len({replace(pay, **change).fingerprint for change in [{}, *changes]}) == 1 + len(changes)
    moved = replace(pay, find_current=lambda _: replace(pay, description="Pays twice."))
    assert moved.fingerprint == replace(pay, description="Pays twice.").fingerprint
