"""Forms and choices: which schemas can be asked, and how answers are read."""

from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from callboard.calls.forms import (
    MAX_TRIES,
    UnfitAnswer,
    ask_until_fitting,
    make_changes_form,
    read_answer,
    read_changes,
    read_form,
)
from callboard.errors import ToolNotAnswered
from callboard_protocol import InputRequest

TRIP = {
    "type": "object",
    "required": ["date", "cabin"],
    "properties": {
        "date": {"type": "string", "format": "date", "title": "Date"},
        "cabin": {"type": "string", "enum": ["eco", "biz"], "enumNames": ["Economy", "Business"]},
        "bags": {"type": "integer", "minimum": 0, "maximum": 3, "default": 1},
        "weight": {"type": "number"},
        "refundable": {"type": "boolean"},
        "meals": {"type": "array", "items": {"type": "string", "enum": ["meat", "fish", "none"]}, "maxItems": 2},
        "mail": {"type": "string", "format": "email", "maxLength": 20},
        "page": {"type": "string", "format": "uri"},
        "at": {"type": "string", "format": "date-time"},
    },
}
GOOD = {"date": "2026-11-26", "cabin": "eco"}


def form(schema: dict[str, Any]) -> InputRequest:
    return InputRequest(request_id="q", kind="form", title="Trip", message="Which flight?", schema=read_form(schema))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, {}),
        ({"bags": " 2 ", "weight": "2.5", "refundable": "No"}, {"bags": 2, "weight": 2.5, "refundable": False}),
        ({"cabin": "business"}, {"cabin": "biz"}),
        ({"cabin": "2"}, {"cabin": "biz"}),
        ({"meals": "Fish, 1"}, {"meals": ["fish", "meat"]}),
        ({"bags": "", "mail": " ", "meals": [], "weight": None}, {}),
        ({"mail": "a@b.org", "page": "https://b.org", "at": "2026-11-26T10:00:00Z"}, None),
        ({"unknown": 1}, {}),
    ],
)
def test_values_are_read_in_the_types_of_the_fields(given: dict[str, Any], read: dict[str, Any] | None) -> None:
    assert read_answer(form(TRIP), GOOD | given) == GOOD | (given if read is None else read)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"date": ""}, "Date: an answer is needed"),
        ({"date": "tomorrow"}, "Date: it is not a date such as 2026-12-31"),
        ({"date": 5}, "Date: it is not a text"),
        ({"cabin": "first"}, "cabin: it is not one of the choices"),
        ({"weight": 10**400}, "weight: it is not a number"),
        ({"bags": 4}, "bags: at most 3"),
        ({"bags": -1}, "bags: at least 0"),
        ({"bags": 1.5}, "bags: it is not a whole number"),
        ({"bags": True}, "bags: it is not a number"),
        ({"weight": "nan"}, "weight: it is not a number"),
        ({"refundable": "perhaps"}, "refundable: answer yes or no"),
        ({"meals": ["fish", "meat", "none"]}, "meals: at most 2 choices"),
        ({"meals": [{}]}, "meals: it is not one of the choices"),
        ({"mail": "nobody"}, "mail: it is not an e-mail address"),
        ({"mail": "somebody@example.organisation"}, "mail: at most 20 characters"),
        ({"page": "b"}, "page: it is not an address such as https://example.org"),
        ({"at": "noon"}, "at: it is not a time such as 2026-12-31T23:59:00Z"),
    ],
)
def test_value_that_does_not_fit_is_refused_with_field_and_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnfitAnswer) as refused:
        read_answer(form(TRIP), GOOD | given)
    assert str(refused.value) == reason


def test_answer_to_a_form_is_an_object_or_none_or_a_refusal() -> None:
    assert read_answer(form(TRIP), None) is None
    assert read_answer(form(TRIP), False) is False
    with pytest.raises(UnfitAnswer, match="object"):
        read_answer(form(TRIP), True)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array"}, "object"),
        ({"properties": {"a": {"type": "object"}}}, "'a' is of type 'object'"),
        ({"properties": {"a": True}}, "'a' has no schema"),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}}, "list without choices"),
        ({"properties": {"a": {"$ref": "https://example.org"}}}, "'a' is of type None"),
        ({"properties": {f"f{number}": {"type": "string"} for number in range(51)}}, "at most 50 fields"),
        ({"properties": {"a": {"type": "string", "description": "x" * 40_000}}}, "at most 32768 bytes"),
    ],
)
def test_form_that_is_not_flat_cannot_be_asked(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_form(schema)


def test_parts_of_a_form_that_nobody_can_use_are_dropped() -> None:
    number = {"type": "integer", "maximum": 10**400, "minLength": 10**400, "default": 10**400}
    word = {"type": "string", "pattern": "(a+)+$", "maxLength": 3, "default": "long", "minLength": True}
    assert read_form({"properties": {"a": number, "b": word}, "required": [["a"], "a", "c"]}) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 3}},
        "required": ["a"],
    }


async def test_question_is_asked_again_with_the_reason_and_the_values_that_fit() -> None:
    answers: list[Any] = [GOOD | {"bags": 9}, GOOD | {"bags": 2}]
    asked: list[InputRequest] = []

    async def ask(question: InputRequest) -> Any:
        asked.append(question)
        return answers.pop(0)

    question = InputRequest(request_id="q", kind="form", title="Trip", message="Which flight?", schema=TRIP)
    assert await ask_until_fitting(question, ask) == GOOD | {"bags": 2}
    assert [one.request_id for one in asked] == ["q", "again1:q"]
    assert asked[1].message == "The answer does not fit: bags: at most 3\n\nWhich flight?"
    fields = asked[1].form["properties"]
    assert {name: field["default"] for name, field in fields.items() if "default" in field} == GOOD | {"bags": 1}


async def test_answers_that_never_fit_are_an_error_of_their_own() -> None:
    asked: list[InputRequest] = []

    async def ask(question: InputRequest) -> Any:
        asked.append(question)
        return "blue"

    question = InputRequest(request_id="q", kind="input", title="?", choices=("red", "green"))
    with pytest.raises(ToolNotAnswered, match="5 times, and the answers do not fit: choose one of the answers"):
        await ask_until_fitting(question, ask)
    assert len({one.request_id for one in asked}) == MAX_TRIES
    assert asked[-1].message == "The answer does not fit: choose one of the answers"


@pytest.mark.parametrize(("given", "read"), [("Red", "red"), ("2", "green"), ("blue", "blue")])
async def test_choice_is_named_by_text_or_number_and_other_words_are_allowed(given: str, read: str) -> None:
    question = InputRequest(request_id="q", kind="input", title="?", choices=("red", "green"), other=True)
    assert read_answer(question, given) == read


class Size(Enum):
    A4 = "a4"
    A5 = "a5"


class Mail(BaseModel):
    to: str
    copies: int = 1
    subject: str | None = None
    body: str = ""
    kind: Literal["letter", "note"] = "letter"
    labels: dict[str, str] = {}
    password: str = ""
    paper: Size = Size.A4
    envelope: Size | None = None


def test_form_for_changes_has_the_arguments_that_it_shows_as_they_are() -> None:
    written = {"to": "ann@example.org", "copies": 2, "body": "Dear Ann,\nhello", "kind": "note", "password": "x"}
    form = make_changes_form(Mail.model_json_schema(), written, without=["password"])
    fields = form["properties"]
    assert list(fields) == ["to", "copies", "subject", "kind", "paper", "envelope"]
    assert [fields[name].get("default") for name in fields] == ["ann@example.org", 2, None, "note", "a4", None]
    assert fields["paper"]["oneOf"] == fields["envelope"]["oneOf"]
    assert form["required"] == ["to"]
    hidden = written | {"to": "ann\u202e@example.org"}
    assert "to" not in make_changes_form(Mail.model_json_schema(), hidden, without=())["properties"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        # The largest number that JavaScript can tell from the next one is 2**53 - 1.
        ({"type": "integer"}, 2**53),
        ({"type": "number"}, -(2.0**60)),
        # Choices come back as texts.
        ({"type": "integer", "enum": [1, 2]}, None),
        # The pipe shows invisible characters as escapes, which come back in their place.
        ({"type": "string", "default": "\t"}, None),
        ({"type": "array", "items": {"enum": [",", "\t"]}}, ["\t"]),
    ],
)
def test_form_for_changes_has_no_argument_that_a_page_would_return_changed(schema: dict[str, Any], value: Any) -> None:
    parameters = {"properties": {"value": schema, "to": {"type": "string"}}}
    arguments = {"to": "a"} if value is None else {"to": "a", "value": value}
    assert list(make_changes_form(parameters, arguments, without=())["properties"]) == ["to"]


@pytest.mark.parametrize("value", [None, " "])
@pytest.mark.parametrize("kind", [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["string", "null"]}])
def test_form_for_changes_can_be_submitted_with_a_required_argument_that_is_empty(
    kind: dict[str, Any], value: str | None
) -> None:
    text_or_null = {**kind, "default": "shown"}
    form = make_changes_form({"properties": {"text": text_or_null}, "required": ["text"]}, {"text": value}, without=())
    assert form["required"] == []
    assert form["properties"]["text"].get("default") == value
    assert read_changes(form, {"text": value}, {"text": value}) == {"text": value}


def test_form_for_changes_leaves_out_null_and_arguments_that_it_cannot_show() -> None:
    tree = {"tree": {"type": "object"}}
    paper = {"paper": {"type": ["string", "null"], "enum": ["a4", None]}}
    form = make_changes_form({"properties": tree | paper}, {"tree": {}, "paper": None}, without=())
    assert form["properties"] == {"paper": {"type": "string", "oneOf": [{"const": "a4", "title": "a4"}]}}
    assert make_changes_form({"properties": tree}, {"tree": {}}, without=()) == {}


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ({"to": "c", "copies": "3"}, {"to": "c", "copies": 3, "body": "b\n"}),
        ({"to": "a", "copies": 2, "subject": "New"}, {"to": "a", "copies": 2, "body": "b\n", "subject": "New"}),
        ({"to": "a", "copies": None}, {"to": "a", "body": "b\n"}),
    ],
)
def test_changes_are_read_from_the_form(answer: dict[str, Any], read: dict[str, Any]) -> None:
    written = {"to": "a", "copies": 2, "body": "b\n"}
    form = make_changes_form(Mail.model_json_schema(), written, without=())
    assert read_changes(form, written, answer) == read
    with pytest.raises(UnfitAnswer, match="body: it cannot be changed"):
        read_changes(form, written, answer | {"body": "other"})
