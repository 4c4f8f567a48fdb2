"""Asks the user a question that a framework gives in a form of its own."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from callboard.calls.forms import read_form
from callboard.frameworks.turn import AdapterTurn, ask_user, to_text

LITERAL_ANSWERS = {"yes": True, "true": True, "no": False, "false": False}
"""Answers that become booleans: graphs test them in a condition, where the text `no` would count as true."""

UNANSWERED = "I cannot go on without your answer. Send it, and I will start again."


async def ask_question(turn: AdapterTurn, question: object, schema: object, call_id: str | None) -> object:
    """Return the user's answer: the values of a form, the value of an option, or a text or what it stands for."""
    text, options = _read_question(question)
    if (form := _find_form(schema)) is not None:
        return await ask_user(turn, "form", text, call_id, schema=form)
    if not options:
        is_yes_or_no = isinstance(schema, Mapping) and schema.get("type") == "boolean"
        answer = await ask_user(turn, "confirmation" if is_yes_or_no else "input", text, call_id)
        return LITERAL_ANSWERS.get(answer.strip().lower(), answer) if isinstance(answer, str) else answer
    answer = await ask_user(turn, "input", text, call_id, choices=list(options), other=True)
    return options.get(answer, answer)


def _find_form(schema: object) -> dict[str, Any] | None:
    """Return the schema that an interrupt gives for its answer if it is a form, otherwise None."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return None
    try:
        return read_form(schema)
    except ValueError:
        return None


def to_lines(value: object) -> str:
    """Return a value as JSON on several lines."""
    return to_json(value, indent=2, serialize_unknown=True).decode()


def _read_question(question: object) -> tuple[str, dict[str, object]]:
    """Return a question as text, and its options, values by label, without which any text is an answer.

    LangGraph prescribes no form: `{"question": …, "options": […]}` is read, whose other fields follow the text as JSON.
    """
    options: dict[str, object] = {}
    match question:
        case str():
            return question, {}
        case {"question": str(text), "options": [*listed], **rest}:
            options = dict(map(_read_option, listed))
            objects = (option for option in listed if isinstance(option, Mapping) and option.get("description"))
            text = "\n".join([text, *(f"{option.get('label')}: {option['description']}" for option in objects)])
        case {"question": str(text), **rest}:
            pass
        case _:
            return to_lines(question), {}
    return "\n\n".join([text, *([to_lines(rest)] if rest else [])]), options


def _read_option(option: object) -> tuple[str, object]:
    """Return the label and the value of an option: a text, a number, or an object with `label` and `value`."""
    match option:
        case {"label": str(label), **rest}:
            return label, rest.get("value", label)
        case _:
            return to_text(option), option
