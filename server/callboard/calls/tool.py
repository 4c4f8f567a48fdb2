"""A tool: a function that a model may call, with its schema; and its result."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import Any, Concatenate, Generic, NoReturn, Self, get_args, get_type_hints, overload
from uuid import uuid4

from pydantic import SecretStr
from pydantic_core import to_json, to_jsonable_python
from typing_extensions import ParamSpec, TypeVar

from callboard.calls.arguments import ReadArguments, schema_arguments
from callboard.calls.context import ToolContext
from callboard.calls.pictures import is_picture
from callboard.errors import AgentError, RequestError, ToolError
from callboard.redaction import MASK
from callboard.text import storable
from callboard_protocol import OfferedFunction, Plan, Source
from callboard_protocol.events import EXTERNAL_ID_PREFIX

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)
Instance = TypeVar("Instance")
Bound = ParamSpec("Bound")
Returned = TypeVar("Returned")

NeedsConfirmation = Callable[[Mapping[str, Any]], bool]
"""Returns whether a call with these arguments, as the function gets them, needs the user's approval."""

NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The function names that OpenAI's API accepts."""

_SHOWN = re.compile(r"|table|markdown|text|code(?::[\w+#-]{1,20})?")
_SPECIAL_NAME = re.compile(r"__\w+__")


def refuse_special_parameter(name: str, where: str) -> None:
    """Raise `AgentError` for a parameter that only Open WebUI fills in, such as `__user__`.

    https://docs.openwebui.com/features/plugin/tools/development
    """
    if _SPECIAL_NAME.fullmatch(name):
        raise AgentError(
            f"{where} has the parameter '{name}', which Open WebUI gives to its own tools: take a parameter "
            "`context: ToolContext` in its place, which has status(), user, chat_id and tool_call_id."
        )


@dataclass(frozen=True, slots=True)
class Tool(Generic[P, R]):
    """A function that a model may call: `Tool[[int], str]` takes an integer and returns text.

    Written by hand, or made by `@tool`. Raises `AgentError` if the definition cannot work.

    `parameters`: the JSON schema of the arguments, an object.
    `function`: a plain or async function that takes the arguments by keyword. It may return text, a `ToolResult`, or
    anything that JSON can hold.
    `timeout_seconds`: its time limit, in place of the server's.
    `read_only`: it changes nothing, so a call that was cut off may be completed and run.
    `repeatable`: running it twice has the same effect as once, so a server that takes over a run may run it again.
    `title`: the name that people read.
    `requires_confirmation`: the user is asked before it runs, always or if the function returns True for the arguments.
    `changes`: returns whether a call does more than read. A setting that makes the tool ask first applies only to calls
    that do.
    `secrets`: names of arguments whose values are not shown, stored or logged, and values that are removed from every
    text. For a secret that the tool gets while it runs, use `ToolContext.secret`.
    `is_method`: the function takes `self`, so the tool must be taken from an instance (`desk.write`).
    `origin`: the server or program that has the tool, if it is not the agent's own. A tool of another origin is another
    tool, although it may look the same.
    `find_current`: returns the tool of a name as its server lists it now; None if it is not listed.
    `show`: the form in which people see the result, if it should not be chosen by the result: `table` (a list of
    objects), `markdown`, `code`, `code:` and a language, or `text` for the card alone. The model gets the same result.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[P, R]
    timeout_seconds: float | None = None
    read_arguments: ReadArguments | None = field(default=None, repr=False, compare=False)
    context_parameter: str | None = field(default=None, repr=False)
    read_only: bool = False
    repeatable: bool = False
    title: str = ""
    requires_confirmation: bool | NeedsConfirmation = False
    changes: NeedsConfirmation | None = field(default=None, repr=False)
    secrets: Sequence[str | SecretStr] = field(default=(), repr=False)
    is_method: bool = field(default=False, repr=False)
    origin: str = field(default="", repr=False)
    find_current: Callable[[str], Tool | None] | None = field(default=None, repr=False, compare=False)
    show: str = ""
    secret_arguments: frozenset[str] = field(init=False, repr=False, compare=False)
    """The names of its arguments whose values are secret."""
    secret_values: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The values that are removed from every text."""

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise AgentError(
                f"A tool cannot be named {self.name!r}: models take 1 to 64 letters, digits, '_' and '-' only."
            )
        if not self.description.strip():
            raise AgentError(f"The tool '{self.name}' has no description: the model would not know when to call it.")
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise AgentError(f"The tool '{self.name}' needs a timeout_seconds above 0, not {self.timeout_seconds}.")
        if not _SHOWN.fullmatch(self.show):
            raise AgentError(
                f"The tool '{self.name}' cannot show its result as {self.show!r}: use table, markdown, code, code:sql "
                "(or another language) or text."
            )
        if isinstance(self.secrets, str | SecretStr):
            raise AgentError(f"The tool '{self.name}' needs its secrets as a sequence: secrets=(\"password\",).")
        if self.read_arguments is None:
            self._adopt_schema()
        secrets = [one.get_secret_value() if isinstance(one, SecretStr) else one for one in self.secrets]
        names = frozenset(one for one in secrets if one in self.parameters.get("properties", {}))
        schema = to_json(self.parameters).decode() if self.secrets else ""
        for one in {secret for secret in self.secrets if isinstance(secret, str)} - names:
            if f'"{one}":{{' in schema:
                raise AgentError(
                    f"The tool '{self.name}' has the secret '{one}', a field inside an argument: name that argument."
                )
        object.__setattr__(self, "secret_arguments", names)
        object.__setattr__(self, "secret_values", tuple(value for value in secrets if value not in names))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly, for the author's own code and tests."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type | None = None, /) -> Self: ...

    @overload
    def __get__(
        self: Tool[Concatenate[Instance, Bound], Returned], instance: Instance, owner: type | None = None, /
    ) -> Tool[Bound, Returned]: ...

    def __get__(self, instance: object, owner: type | None = None, /) -> Tool:
        if instance is None or not self.is_method:
            return self
        return replace(self, function=MethodType(self.function, instance), is_method=False)

    def schema(self) -> dict[str, Any]:
        """Return the tool as an entry of a request's `tools`."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the tool as it is now, which changes with its origin, name, description and schema."""
        now = (self.find_current and self.find_current(self.name)) or self
        return make_fingerprint([now.origin, now.name, now.title, now.description, now.parameters])

    def asks_first(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the tool itself demands approval of a call with these arguments."""
        needed = self.requires_confirmation
        return needed if isinstance(needed, bool) else needed(arguments)

    def does_change(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments may do more than read."""
        return self.changes is None or self.changes(arguments)

    def without_secrets(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the values of those in `find_hidden` masked."""
        hidden = self.find_hidden(arguments)
        return {name: MASK if name in hidden else value for name, value in arguments.items()}

    def find_hidden(self, names: Iterable[str]) -> set[str]:
        """Return which of these arguments are secret; unknown ones are too if any is, because they may be misspelt."""
        if not self.secret_arguments:
            return set()
        return set(names) - (set(self.parameters.get("properties", ())) - self.secret_arguments)

    def _adopt_schema(self) -> None:
        if self.parameters.get("type") != "object":
            raise AgentError(f"The parameters of the tool '{self.name}' must be a JSON schema of type 'object'.")
        try:
            reader = schema_arguments(self.parameters)
        except ValueError as error:
            raise AgentError(f"The parameters of the tool '{self.name}' are no JSON schema: {error}.") from error
        for name in _list_parameters(self.function):
            refuse_special_parameter(name, f"The tool '{self.name}'")
        object.__setattr__(self, "read_arguments", reader)
        object.__setattr__(self, "context_parameter", _find_context_parameter(self.function))


def make_fingerprint(shown: object) -> str:
    """Return a hash of a JSON value, which does not depend on the order of an object's members."""
    text = json.dumps(to_jsonable_python(shown, fallback=str), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_context(annotation: object) -> bool:
    """Return whether the annotation of a parameter asks for the call's `ToolContext`."""
    return annotation is ToolContext or ToolContext in get_args(annotation)


def _list_parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except ValueError:
        # Some built-in functions have no signature.
        return []


def _find_context_parameter(function: Callable[..., Any]) -> str | None:
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):
        # Annotations need not be resolvable if the schema is written by hand.
        hints = {name: one.annotation for name, one in inspect.signature(function).parameters.items()}
    names = [name for name, hint in hints.items() if name != "return" and is_context(hint)]
    return names[0] if names else None


@dataclass(frozen=True, slots=True)
class ClientTool(Tool):
    """A function of the client. A call of it ends the run; `strict` is OpenAI's field, sent to the model."""

    strict: bool | None = None

    @classmethod
    def of(cls, offered: OfferedFunction) -> ClientTool:
        """Return the tool for a client's function. Raises `RequestError` if its parameters are not an object."""
        parameters = {"type": "object", "properties": {}, **offered.parameters}
        if parameters["type"] != "object":
            raise RequestError(f"tools: the parameters of {offered.name} must be a JSON schema of type 'object'")
        return cls(
            name=offered.name,
            # OpenAI's clients may leave it out; then the model has at least the name.
            description=offered.description.strip() or offered.name,
            parameters=parameters,
            function=_is_not_run_here,
            # The client checks its own arguments: patterns in its schema could take forever to match here.
            read_arguments=dict,
            strict=offered.strict,
        )

    def schema(self) -> dict[str, Any]:
        """Return the function in the client's own form, without `strict` if that is false, the default."""
        schema = Tool.schema(self)
        return {**schema, "function": {**schema["function"], "strict": True}} if self.strict else schema


def new_external_id() -> str:
    """Return an id that cannot be guessed: the client's next request finds the run by it."""
    return f"{EXTERNAL_ID_PREFIX}{uuid4().hex}"


def _is_not_run_here() -> NoReturn:
    raise AssertionError("the client runs its own functions")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool that returns more than text.

    The model reads `text`, or `data` as JSON if `text` is empty. A picture in it, as base64 or as a `data:` URL, is
    shown with the `files` and leaves a short mark. `files` are shown under the call:
    `{"type": "image", "url": "data:image/png;base64,…"}`, or `{"type": "file", "name": "a.csv", "url": …}`, with a
    `data:` URL or a web address. `embeds` are HTML pages or URLs that are shown in frames. `sources` are citations
    (`Source`, or its fields as a dict). `plan` replaces the plan of the agent's work. `error` says why the call failed;
    the other fields are ignored then.
    """

    text: str = ""
    files: Sequence[Mapping[str, Any]] = ()
    embeds: Sequence[str] = ()
    sources: Sequence[Source | Mapping[str, Any]] = ()
    data: Any = None
    error: str = ""
    plan: Plan | None = None


def as_result(value: object) -> ToolResult:
    """Return a tool's return value as a result: text unchanged, None as empty text, everything else as JSON.

    Raises `ToolError` if the result is an error, and `TypeError` or `ValueError` (also pydantic's errors) if the value
    cannot be a result.
    """
    match value:
        case ToolResult():
            return _check(value)
        case str():
            return ToolResult(storable(value))
        case None:
            return ToolResult("")
        case bytes() if is_picture(encoded := b64encode(value).decode()):
            return ToolResult(encoded)
        case _:
            return ToolResult(_write_json(value))


_FILE_URLS = ("data:", "https://", "http://", "/")
_FILE_FORM = (
    'give {"type": "image", "url": "data:image/png;base64,…"} for a picture, and {"type": "file", "name": "a.csv", '
    '"url": …} for any other file; the url is a data: URL or a web address'
)


def _check(result: ToolResult) -> ToolResult:
    # Checked here, so that a wrong field is an error of this call and not of the run.
    if result.error:
        raise ToolError(storable(str(result.error)))
    if not isinstance(result.text, str):
        raise TypeError(f"ToolResult.text must be a string, not {type(result.text).__name__}")
    if isinstance(result.embeds, str) or not all(isinstance(embed, str) for embed in result.embeds):
        raise TypeError("ToolResult.embeds must be a sequence of strings")
    files = to_jsonable_python(list(result.files))
    for file in files:
        if not (isinstance(file, dict) and str(file.get("url")).startswith(_FILE_URLS)):
            raise TypeError(f"ToolResult.files has {file!r:.80}: {_FILE_FORM}")
    return ToolResult(
        text=storable(result.text or ("" if result.data is None else _write_json(result.data))),
        data=result.data,
        files=tuple(files),
        embeds=tuple(storable(embed) for embed in result.embeds),
        sources=tuple(Source.model_validate(source) for source in result.sources),
        plan=None if result.plan is None else Plan.model_validate(result.plan),
    )


def _write_json(value: object) -> str:
    return to_json(value, inf_nan_mode="null").decode()
