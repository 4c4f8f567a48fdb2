"""Questions with a form or with choices: which forms can be asked, and how an answer is read.

With such a form the user can also change the arguments of a call while they are asked to approve it.

A form is a flat JSON schema, as in MCP's elicitation:
https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#requested-schema
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from callboard.calls.approval import ALWAYS, DO_NOT_RETRY, AnswerTo, may_allow
from callboard.calls.arguments import CALL_AGAIN, DO_NOT_FIT, is_blank
from callboard.calls.call import ResolvedCall, read_object, write_arguments
from callboard.calls.executor import check_arguments
from callboard.errors import ToolError, ToolNotAnswered
from callboard.redaction import Redaction
from callboard_protocol import InputRequest
from callboard_protocol.wire import MAX_CHOICES_BYTES, MAX_FORM_BYTES

MAX_FIELDS = 50
MAX_TRIES = 5
"""How often a question is asked until its answer fits."""

MAX_PAGE_NUMBER = 2**53 - 1
"""JavaScript's largest whole number from which every smaller one is exact; the ids of some services are larger."""

DOES_NOT_FIT = "The answer does not fit"
"""Begins the message of a question that is asked again."""

UNFIT = f"Stopped: the user answered the question {MAX_TRIES} times, and the answers do not fit"
"""Begins the error if no answer fits."""

_TYPES = frozenset({"string", "number", "integer", "boolean", "array"})
_TEXTS = frozenset({"title", "description", "format"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_NUMBERS = frozenset({"minimum", "maximum"})
_FORMATS = {
    "date": "a date such as 2026-12-31",
    "date-time": "a time such as 2026-12-31T23:59:00Z",
    "email": "an e-mail address",
    "uri": "an address such as https://example.org",
}
_OPTION_NUMBER = re.compile(r"[0-9]{1,4}\.?")
_WORDS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


class UnfitAnswer(Exception):
    """An answer does not fit its question. The message is the reason, for the user."""


ReadAnswer = Callable[[Any], Any]
"""Returns an answer in the types that its question names. Raises `UnfitAnswer`."""


async def ask_until_fitting(question: InputRequest, ask: AnswerTo, read: ReadAnswer | None = None) -> Any:
    """Ask the question, again if the answer does not fit, and return the answer; None if there is none.

    `ask` sends one question and waits for its answer. `read` is used in place of `read_answer`. Raises `ValueError` if
    the form or the choices cannot be asked, and `ToolNotAnswered` if the last of `MAX_TRIES` answers does not fit.
    """
    if question.kind == "form":
        question = question.model_copy(update={"form": read_form(question.form)})
    if len(json.dumps(question.choices)) > MAX_CHOICES_BYTES:
        raise ValueError(f"the choices are over {MAX_CHOICES_BYTES} bytes")
    asked = question
    reason = ""
    for number in range(1, MAX_TRIES + 1):
        answer = await ask(asked)
        try:
            return read(answer) if read else read_answer(question, answer)
        except UnfitAnswer as unfit:
            reason = str(unfit)
            message = f"{DOES_NOT_FIT}: {reason}\n\n{question.message}".strip()
            has_arguments = question.kind == "confirmation" and isinstance(answer, Mapping)
            form = _keep_values(question.form, answer.get("arguments") if has_arguments else answer)
            # After a takeover the question has the same id, so that an answer that was given before still counts. It
            # does not begin with `APPROVAL_PREFIX`, because no call waits for it.
            again = {"request_id": f"again{number}:{question.request_id}", "message": message, "form": form}
            # Without `arguments`, an approval is drawn from its message, which has the reason.
            asked = question.model_copy(update={**again, "arguments": None})
    raise ToolNotAnswered(f"{UNFIT}: {reason}. {DO_NOT_RETRY}")


def read_answer(question: InputRequest, answer: Any) -> Any:
    """Return the answer in the types that the question names. Raises `UnfitAnswer`.

    None is no answer, and False as the answer to a form means that the user declined it.
    """
    if answer is None or (question.kind == "form" and answer is False):
        return answer
    if question.kind == "form":
        if not isinstance(answer, Mapping):
            raise UnfitAnswer("it has to be an object with the form's fields")
        return _read_fields(question.form, answer)
    if question.kind == "input" and question.choices:
        place = _find_option(str(answer), question.choices)
        if place is None and not (question.other and str(answer).strip()):
            raise UnfitAnswer("choose one of the answers")
        return answer if place is None else question.choices[place]
    return answer


def read_form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a form's schema with the keywords that are known. Raises `ValueError` if it is not flat.

    Unknown keywords are dropped, also `pattern`: a regular expression of another server may take forever.
    """
    fields = schema.get("properties", {})
    if schema.get("type", "object") != "object" or not isinstance(fields, Mapping):
        raise ValueError("a form is a JSON schema of an object")
    if len(fields) > MAX_FIELDS:
        raise ValueError(f"a form has at most {MAX_FIELDS} fields")
    required = schema.get("required", ())
    if not isinstance(required, list | tuple):
        required = ()
    form = {
        "type": "object",
        "properties": {str(name): _read_field(str(name), field) for name, field in fields.items()},
        "required": [name for name in required if isinstance(name, str) and name in fields],
    }
    if len(json.dumps(form)) > MAX_FORM_BYTES:
        raise ValueError(f"a form has at most {MAX_FORM_BYTES} bytes")
    return form


class ChangesForm:
    """The form in which the user can change a call's arguments.

    `schema` has the arguments with their values as defaults; {} if none can be changed, for example because all are
    secret or none fits a form. `call` is the call to run: after `read`, with the user's changes.
    """

    def __init__(self, call: ResolvedCall, redaction: Redaction) -> None:
        self.call = call
        hidden = call.tool.secret_arguments
        # In some formats the model writes every value as a text, so its own text would not fit the schema.
        self._given = read_object(write_arguments(call.arguments) if call.call.is_untyped else call.arguments_text)
        self.schema = make_changes_form(call.tool.parameters, self._given, hidden, redaction.value)
        if hidden and call.call.is_untyped:
            # The values for the function, written as JSON, have asterisks in place of secrets.
            self.schema = {}

    def read(self, answer: Any) -> Any:
        """Make the changes that an answer has, and return its decision: True or `ALWAYS`.

        An answer without arguments, or that refuses the call, is returned unchanged.

        Raises `UnfitAnswer` if the tool does not accept the changed arguments.
        """
        if not (self.schema and isinstance(answer, dict) and may_allow(answer)):
            return answer
        arguments = read_changes(self.schema, self._given, answer["arguments"])
        if arguments != self._given:
            try:
                values = check_arguments(self.call.tool, arguments)
            except ToolError as error:
                raise UnfitAnswer(str(error).removeprefix(DO_NOT_FIT).removesuffix(CALL_AGAIN)) from error
            self.call = replace(
                self.call,
                call=replace(self.call.call, is_changed=True),
                arguments=values,
                arguments_text=write_arguments(arguments),
            )
        return ALWAYS if answer.get("always") is True else True


def make_changes_form(
    parameters: Mapping[str, Any],
    arguments: Mapping[str, Any],
    without: Collection[str],
    redact: Callable[[Any], Any] = lambda value: value,
) -> dict[str, Any]:
    """Return the form to change a call's arguments, with their values as defaults; {} if none can be changed.

    It has the arguments that a page shows and returns as they are, except those in `without` and those with secrets,
    which `redact` removes from a JSON value: the mask of a secret would come back as the value.
    """
    fields: dict[str, Any] = {}
    properties = parameters.get("properties")
    for name, schema in (properties if isinstance(properties, Mapping) else {}).items():
        try:
            field = _read_field(name, _simplify(schema, parameters.get("$defs")))
        except ValueError:
            continue
        if name in arguments:
            # Null is no default, so that the form does not show the schema's default in place of null.
            field = {**field, "default": arguments[name]}
        is_secret = name in without or redact(field) != field
        if not is_secret and name.isprintable() and _is_returned_unchanged(field):
            fields[name] = field
    try:
        form = read_form({"properties": fields, "required": parameters.get("required", ())})
    except ValueError:
        return {}
    # A page does not submit an empty field that is required, although the model may give an empty text or null.
    form["required"] = [name for name in form["required"] if not is_blank(fields[name].get("default"))]
    return form if fields else {}


def _is_returned_unchanged(field: Mapping[str, Any]) -> bool:
    """Return whether a page shows the field's value as it is and returns the same value if the user leaves it.

    It shows a text on one line, returns every choice as a text, and stores numbers as `MAX_PAGE_NUMBER` says.
    """
    value = field.get("default")
    if "oneOf" in field and field["type"] != "string":
        return False
    texts = value if isinstance(value, list) else [value]
    if any(isinstance(text, str) and not text.isprintable() for text in texts):
        return False
    if isinstance(value, int | float) and not -MAX_PAGE_NUMBER <= value <= MAX_PAGE_NUMBER:
        return False
    return value is None or not _find_problem(field, value)


def _simplify(schema: object, definitions: object) -> object:
    """Return an argument's schema without its null alternative, and with its reference resolved.

    `definitions` are the schema's `$defs`, for example of Python's enumerations.
    """
    if not isinstance(schema, Mapping):
        return schema
    if isinstance(kinds := schema.get("anyOf"), list):
        kinds = [kind for kind in kinds if kind != {"type": "null"}]
        if len(kinds) == 1 and isinstance(kinds[0], Mapping):
            schema = {**schema, **kinds[0], "anyOf": None}
    if isinstance(types := schema.get("type"), list):
        types = [one for one in types if one != "null"]
        schema = {**schema, "type": types[0] if len(types) == 1 else types}
    if isinstance(values := schema.get("enum"), list):
        schema = {**schema, "enum": [value for value in values if value is not None]}
    reference = str(schema.get("$ref", ""))
    found = definitions.get(reference.removeprefix("#/$defs/")) if isinstance(definitions, Mapping) else None
    return {**found, **schema} if isinstance(found, Mapping) else schema


def read_changes(form: Mapping[str, Any], arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments with the values of the user's form; a field without a value is left out.

    A value that is shown in the form and comes back unchanged stays as the model wrote it. Raises `UnfitAnswer`.
    """
    shown = {name: field.get("default") for name, field in form["properties"].items()}
    if unknown := [name for name in answer if name not in shown]:
        raise UnfitAnswer(f"{', '.join(unknown)}: it cannot be changed")
    changed = [name for name in shown if answer.get(name) != shown[name]]
    fields = {name: form["properties"][name] for name in changed}
    required = [name for name in form["required"] if name in changed]
    values = _read_fields({"properties": fields, "required": required}, answer)
    return {name: value for name, value in arguments.items() if name not in changed or name in values} | values


def _read_field(name: str, field: object) -> dict[str, Any]:
    """Return the schema of one field with choices as `oneOf` or `enum`. Raises `ValueError`."""
    if not isinstance(field, Mapping):
        raise ValueError(f"the field '{name}' has no schema")  # noqa: TRY004 - the author's mistake, as the others are
    kind = field.get("type", "string" if _list_options(field) else None)
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"the field '{name}' is of type {kind!r}: a form has texts, numbers, booleans and choices")
    read: dict[str, Any] = {"type": kind, **{key: str(field[key]) for key in _TEXTS if isinstance(field.get(key), str)}}
    read |= {key: field[key] for key in _COUNTS if _is_number(field.get(key), int)}
    read |= {key: field[key] for key in _NUMBERS if _is_number(field.get(key), int | float)}
    if kind == "array":
        items = field.get("items")
        options = _list_options(items) if isinstance(items, Mapping) else []
        if not options:
            raise ValueError(f"the field '{name}' is a list without choices: a form has lists of choices")
        read["items"] = {"type": "string", "anyOf": options}
    elif options := _list_options(field):
        read["oneOf"] = options
    default = field.get("default")
    if default is not None and not _find_problem(read, default):
        read["default"] = default
    return read


def _list_options(field: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the choices of a field, in the form that has a title for each."""
    for name in ("oneOf", "anyOf"):
        if isinstance(listed := field.get(name), list):
            return [
                {"const": str(one["const"]), "title": str(one.get("title") or one["const"])}
                for one in listed
                if isinstance(one, Mapping) and "const" in one
            ]
    if not isinstance(values := field.get("enum"), list):
        return []
    names = field.get("enumNames")
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return [{"const": str(value), "title": str(title)} for value, title in zip(values, titles, strict=True)]


def _is_number(value: object, kinds: Any) -> bool:
    try:
        return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        # A whole number that is larger than any float.
        return False


def show_default(field: Mapping[str, Any]) -> str:
    """Return the default value of a field as a text that the field accepts; "" if it has none."""
    match field.get("default", ""):
        case bool() as is_true:
            return "yes" if is_true else "no"
        case list() as chosen:
            return ", ".join(chosen)
        case value:
            return str(value)


def _read_fields(form: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the form's fields. Raises `UnfitAnswer` with the reasons of all fields."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, field in form["properties"].items():
        value = _read_value(field, answer.get(name))
        if value is None:
            problem = "an answer is needed" if name in form["required"] else ""
        else:
            values[name] = value
            problem = _find_problem(field, value)
        if problem:
            problems.append(f"{field.get('title') or name}: {problem}")
    if problems:
        raise UnfitAnswer("; ".join(problems))
    return values


def _read_value(field: Mapping[str, Any], value: Any) -> Any:
    """Return a value that is given as text in the field's type; None for an empty one."""
    if field["type"] == "array" and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list) and field["type"] == "array":
        return [_read_option(field["items"]["anyOf"], one) for one in value] or None
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return None
    match field:
        case {"oneOf": options}:
            return _read_option(options, value)
        case {"type": "boolean"}:
            return _WORDS.get(text.lower(), value)
        case {"type": "integer" | "number" as kind}:
            try:
                return int(text) if kind == "integer" else float(text)
            except ValueError:
                return value
    return value


def _read_option(options: Sequence[Mapping[str, str]], value: Any) -> Any:
    """Return the value of the option that is named by its value, its title or its number."""
    if any(value == option["const"] for option in options):
        return value
    place = _find_option(str(value), [option["title"] for option in options])
    return value if place is None else options[place]["const"]


def _find_option(answer: str, labels: Sequence[str]) -> int | None:
    """Return the index of the option whose label or number the answer is, or None."""
    words = answer.strip()
    folded = [label.strip().casefold() for label in labels]
    if words in labels:
        return labels.index(words)
    if words.casefold() in folded:
        return folded.index(words.casefold())
    place = int(words.rstrip(".")) if _OPTION_NUMBER.fullmatch(words) else 0
    return place - 1 if 0 < place <= len(labels) else None


def _find_problem(field: Mapping[str, Any], value: Any) -> str:
    """Return why the value does not fit the field, "" if it does."""
    kind = field["type"]
    if "oneOf" in field:
        return "" if value in [option["const"] for option in field["oneOf"]] else "it is not one of the choices"
    if kind == "array":
        options = [option["const"] for option in field["items"]["anyOf"]]
        if not isinstance(value, list) or any(one not in options for one in value):
            return "it is not one of the choices"
        return _find_range_problem(field, len(value), "minItems", "maxItems", "choices")
    if kind == "boolean":
        return "" if isinstance(value, bool) else "answer yes or no"
    if kind == "string":
        if not isinstance(value, str):
            return "it is not a text"
        problem = _find_range_problem(field, len(value), "minLength", "maxLength", "characters")
        name = field.get("format", "")
        return problem or ("" if _has_format(value, name) else f"it is not {_FORMATS[name]}")
    if not _is_number(value, int | float):
        return "it is not a number"
    if kind == "integer" and value != int(value):
        return "it is not a whole number"
    return _find_range_problem(field, value, "minimum", "maximum", "")


def _find_range_problem(field: Mapping[str, Any], number: float, lowest: str, highest: str, unit: str) -> str:
    if number < field.get(lowest, -math.inf):
        return f"at least {field[lowest]} {unit}".strip()
    if number > field.get(highest, math.inf):
        return f"at most {field[highest]} {unit}".strip()
    return ""


def _has_format(text: str, name: str) -> bool:
    """Return whether the text has the format; unknown formats fit."""
    try:
        match name:
            case "date":
                date.fromisoformat(text)
            case "date-time":
                datetime.fromisoformat(text)
            case "uri":
                return bool(urlsplit(text).scheme)
            case "email":
                mailbox, _, domain = text.rpartition("@")
                return bool(mailbox and domain) and not any(char.isspace() for char in text)
    except ValueError:
        return False
    return True


def _keep_values(form: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """Return the form with the user's values that fit as defaults, so that they need not be given again."""
    if not form or not isinstance(answer, Mapping):
        return dict(form)
    fields = dict(form["properties"])
    for name, field in fields.items():
        value = _read_value(field, answer.get(name))
        if value is not None and not _find_problem(field, value):
            fields[name] = {**field, "default": value}
    return {**form, "properties": fields}
