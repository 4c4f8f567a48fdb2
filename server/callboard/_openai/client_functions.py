"""Functions of the client: its offer with `tool_choice`, and the model's calls of them. Pure.

The client runs its functions: a call of one ends the run, and the next request brings the result. If `tool_choice`
allows only one function, the model is asked for an answer that fits the function's parameters, and the answer is
returned as a call of that function.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callboard.errors import RequestError
from callboard.http.body import refuse_invalid
from callboard_formats import InvalidArguments, read_arguments
from callboard_protocol import (
    ChatMessage,
    Done,
    Event,
    FunctionCall,
    Message,
    OfferedFunction,
    Rewind,
    RunRequest,
    ToolCallExternal,
    ToolCallPart,
    ToolCallStart,
)
from callboard_protocol.events import FORM_ID_PREFIX

Json = dict[str, Any]

IGNORED_HEADER = "X-Callboard-Tools-Ignored"
MAX_TOOLS = 128
"""OpenAI's own limit."""

MAX_HEADER_CHARS = 2_000
"""Proxies refuse longer headers."""

ANSWER_FORM = (
    "Your answer is read by a program, as the arguments of its function '{name}'{description}. When you are done, "
    "answer with one JSON object that fits this JSON schema and nothing else, no code fence either:\n{schema}"
)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the client offered it; `is_custom`: its input is free text, not JSON."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """The functions that a client offers.

    The model may call `functions`, and must if `must_call`. If `form` is set, the answer has to be the arguments of
    that function. `ignored` are the types of tools that agents cannot call. `origins` are the tools that functions
    were made from, by the functions' names.
    """

    functions: tuple[OfferedFunction, ...] = ()
    must_call: bool = False
    form: OfferedFunction | None = None
    ignored: tuple[str, ...] = ()
    origins: Mapping[str, OfferedTool] = field(default_factory=dict)

    def apply_to(self, wanted: RunRequest) -> RunRequest:
        """Return the run with the functions, or with the instruction to answer in the form."""
        if wanted.task is not None:
            return wanted
        if self.form is None:
            return wanted.model_copy(update={"functions": self.functions, "must_call": self.must_call})
        name = self.form.name
        description = self.form.description.strip()
        schema: Json = {"type": "object", **self.form.parameters}
        form: Json = {"name": name, "schema": schema}
        if self.form.strict is not None:
            form["strict"] = self.form.strict
        instruction = ANSWER_FORM.format(
            name=name,
            description=f" ({description})" if description else "",
            schema=json.dumps(schema, ensure_ascii=False),
        )
        return wanted.model_copy(
            update={
                # First, so that `Reference` can count it among the instructions of this request.
                "messages": (ChatMessage(role="system", content=instruction), *wanted.messages),
                "options": {**wanted.options, "response_format": {"type": "json_schema", "json_schema": form}},
            }
        )


def read_offer(tools: Sequence[Any] | None, tool_choice: str | Mapping[str, Any] | None) -> Offer:
    """Return the offer of `tools` and `tool_choice`, in the form of chat completions or of responses.

    Raises `RequestError` for an impossible choice and for an invalid function.
    """
    functions, ignored = _read_functions(tools or ())
    mode, names = _read_choice(tool_choice)
    if mode == "none":
        return Offer(ignored=ignored)
    if names is not None:
        if unknown := names - {function.name for function in functions}:
            raise RequestError(f"tool_choice asks for {', '.join(sorted(unknown))}, which tools does not offer")
        functions = tuple(function for function in functions if function.name in names)
    if mode == "auto":
        return Offer(functions, ignored=ignored)
    if not functions:
        raise RequestError("tool_choice asks for a call of a function, but tools offers none that an agent can call")
    if len(functions) == 1:
        return Offer(form=functions[0], ignored=ignored)
    return Offer(functions, must_call=True, ignored=ignored)


def format_ignored_header(names: Sequence[str]) -> dict[str, str]:
    """Return the header with the names of ignored tools; no header if there are none."""
    if not names:
        return {}
    shown = ", ".join(dict.fromkeys(names))
    if len(shown) > MAX_HEADER_CHARS:
        shown = f"{shown[:MAX_HEADER_CHARS].rpartition(',')[0]}, ..."
    return {IGNORED_HEADER: shown}


def _read_functions(tools: Sequence[Any]) -> tuple[tuple[OfferedFunction, ...], tuple[str, ...]]:
    if len(tools) > MAX_TOOLS:
        raise RequestError(f"tools: there are {len(tools)}: send no more than {MAX_TOOLS}")
    functions: dict[str, OfferedFunction] = {}
    ignored: list[str] = []
    for place, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise RequestError(f"tools.{place}: must be an object")
        if tool.get("type", "function") != "function":
            ignored.append(_format_header_word(tool["type"]))
            continue
        written = tool.get("function", tool)
        if isinstance(written, Mapping):
            written = {key: value for key, value in written.items() if value is not None}
        try:
            with refuse_invalid():
                function = OfferedFunction.model_validate(written)
        except RequestError as error:
            raise RequestError(f"tools.{place}: {error}") from None
        if function.name in functions:
            raise RequestError(f"tools.{place}: there are two functions named '{function.name}'")
        functions[function.name] = function
    return tuple(functions.values()), tuple(ignored)


def _format_header_word(kind: object) -> str:
    return "".join(one for one in str(kind) if one.isascii() and (one.isalnum() or one in "_-."))[:64] or "unknown"


def _read_choice(choice: str | Mapping[str, Any] | None) -> tuple[str, frozenset[str] | None]:
    """Return `none`, `auto` or `required`, and the names that are allowed, None for all."""
    match choice:
        case None | "auto":
            return "auto", None
        case "none" | "required":
            return choice, None
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return "required", frozenset({name})
        case {"type": "allowed_tools", "allowed_tools": {"mode": str(mode), "tools": list(tools)}} | {
            "type": "allowed_tools",
            "mode": str(mode),
            "tools": list(tools),
        } if mode in ("auto", "required"):
            return mode, frozenset(map(_read_allowed_name, tools))
        case _:
            raise RequestError(
                "this tool_choice is not supported: use none, auto, required, a function or allowed_tools"
            )


def _read_allowed_name(tool: object) -> str:
    match tool:
        case {"function": {"name": str(name)}} | {"name": str(name)}:
            return name
        case _:
            raise RequestError("tool_choice: each of the allowed tools must be a function with its name")


class ClientCalls:
    """Collects the calls of client's functions during a run.

    If `form` is set, the text is held back, because it may become the arguments of that function.
    """

    def __init__(self, run_id: str, form: OfferedFunction | None) -> None:
        self._run_id = run_id
        self._form = form
        self._held = ""
        self._pieces: dict[str, tuple[str, list[str]]] = {}

    def __iter__(self) -> Iterator[ToolCallPart]:
        """Iterate over the calls, which are complete at the end of the run."""
        for call_id, (name, pieces) in self._pieces.items():
            yield ToolCallPart(id=call_id, function=FunctionCall(name=name, arguments="".join(pieces)))

    def __bool__(self) -> bool:
        """Return whether the model has called a function of the client."""
        return bool(self._pieces)

    def filter(self, event: Event) -> Iterator[Event]:
        """Yield the events to show now: the event without the client's calls, and text that is no longer held back."""
        match event:
            case ToolCallExternal():
                self._pieces.setdefault(event.tool_call_id, (event.tool_name, []))[1].append(event.arguments)
                return
            case Message(refusal=False) if self._form:
                self._held += event.content
                return
            case Done() if self._form and (arguments := self._read_form(event)) is not None:
                self._pieces[f"{FORM_ID_PREFIX}{self._run_id}"] = (self._form.name, [arguments])
                self._held = ""
            case Rewind():
                self._held = ""
            case _:
                pass
        # After a call of the agent, the text before it is not the form.
        if self._held and isinstance(event, ToolCallStart | Done):
            yield Message(content=self._held)
            self._held = ""
        yield event

    def _read_form(self, done: Done) -> str | None:
        """Return the arguments of the form, None if the text is not the form: it is a refusal or was filtered."""
        if self._pieces or done.finish_reason in ("content_filter", "refusal"):
            return None
        return _read_object(self._held)


def _read_object(answer: str) -> str | None:
    """Return the JSON object in an answer as text, None if there is no complete one."""
    text = answer.strip()
    if text.startswith("```") and text.endswith("```"):
        # Models put JSON in a code fence if their endpoint does not know `response_format`.
        text = text.removesuffix("```").partition("\n")[2].strip()
    if not text:
        return None
    try:
        read = read_arguments(text, {})
    except InvalidArguments:
        return None
    return json.dumps(read.arguments, ensure_ascii=False) if read.repairs else text
