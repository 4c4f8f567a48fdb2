"""`@tool` makes a tool from a typed and documented Python function.

pydantic makes the schema from the signature. Descriptions come from the docstring, in the style of Google, NumPy,
Sphinx or Epydoc.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_type_hints, overload

import docstring_parser
from pydantic import ConfigDict, Field, SecretStr, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from callboard.calls.arguments import typed_arguments
from callboard.calls.tool import NeedsConfirmation, P, R, Tool, is_context, refuse_special_parameter
from callboard.errors import AgentError

Function = Callable[..., Any]

_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    title: str = "",
    show: str = "",
    timeout_seconds: float | None = None,
    read_only: bool = False,
    repeatable: bool = False,
    requires_confirmation: bool | NeedsConfirmation = False,
    changes: NeedsConfirmation | None = None,
    secrets: Sequence[str | SecretStr] = (),
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    title: str = "",
    show: str = "",
    timeout_seconds: float | None = None,
    read_only: bool = False,
    repeatable: bool = False,
    requires_confirmation: bool | NeedsConfirmation = False,
    changes: NeedsConfirmation | None = None,
    secrets: Sequence[str | SecretStr] = (),
) -> Tool | Callable[[Function], Tool]:
    """Make a tool from a function or a method; with or without parentheses.

    The tool can be called like the function. Every parameter needs an annotation and the function needs a docstring,
    because the model reads both. A parameter with the annotation `ToolContext` is filled in and is not an argument.
    `secrets` are names of arguments whose values are hidden (`secrets=("password",)`), and values that are removed from
    every text (`secrets=(API_KEY,)`). For the other parameters see `Tool`. Raises `AgentError`, with file and line, for
    a function that no model could call.

    Examples:
        >>> @tool
        ... def add(a: int, b: int = 1) -> int:
        ...     "Adds two numbers."
        ...     return a + b
        >>> add.parameters["required"]
        ['a']
    """

    def derive(decorated: Function) -> Tool:
        derived = _derive(decorated, name)
        return replace(
            derived,
            title=title,
            show=show,
            timeout_seconds=timeout_seconds,
            read_only=read_only,
            repeatable=repeatable,
            requires_confirmation=requires_confirmation,
            changes=changes,
            secrets=secrets,
        )

    return derive(function) if function is not None else derive


class _Schema(GenerateJsonSchema):
    """Leaves out titles, which only repeat the names, and warnings about defaults that are not JSON."""

    ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment] # pydantic types it narrower

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def _derive(function: Function, name: str | None) -> Tool:
    called = getattr(function, "__name__", type(function).__name__) if name is None else name
    where = _name_place(function, called)
    documented = docstring_parser.parse(inspect.getdoc(function) or "")
    description = "\n\n".join(filter(None, (documented.short_description, documented.long_description)))
    if not description:
        raise AgentError(f"{where} has no docstring: the model would not know when to call it.")
    hints = _read_hints(function, where)
    explained = {one.arg_name: one.description for one in documented.params if one.description}
    context: str | None = None
    fields: dict[str, Any] = {}
    parameters = list(inspect.signature(function).parameters.values())
    is_method = bool(parameters) and parameters[0].name == "self" and "self" not in hints
    for parameter in parameters[is_method:]:
        if is_context(hints.get(parameter.name)):
            context = parameter.name
        else:
            # Fields are numbered, because a field cannot be named `json` or `_x`, and a parameter can.
            fields[f"p{len(fields)}"] = _make_field(parameter, hints, explained.get(parameter.name), where)
    try:
        model = create_model(called, __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(schema_generator=_Schema)
    except PydanticUserError as error:
        raise AgentError(f"{where} takes a type that JSON cannot describe: {error.message}") from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return Tool(
        called,
        description,
        schema,
        function,
        read_arguments=typed_arguments(model),
        context_parameter=context,
        is_method=is_method,
    )


def _make_field(
    parameter: inspect.Parameter, hints: dict[str, Any], explained: str | None, where: str
) -> tuple[Any, Any]:
    refuse_special_parameter(parameter.name, where)
    if parameter.kind in _UNNAMED:
        raise AgentError(f"{where}: '{parameter}' cannot be given by name: models pass every argument by its name.")
    if parameter.name not in hints:
        raise AgentError(f"{where}: the argument '{parameter.name}' has no type annotation.")
    if isinstance(parameter.default, FieldInfo):
        raise AgentError(f"{where}: write '{parameter.name}' as Annotated[type, Field(…)], its default after '='.")
    settings: dict[str, Any] = {"alias": parameter.name}
    if parameter.default is not inspect.Parameter.empty:
        settings["default"] = parameter.default
    if explained:
        settings["description"] = explained
    return hints[parameter.name], Field(**settings)


def _read_hints(function: Function, where: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise AgentError(f"{where} has an annotation that cannot be resolved: {error}.") from error


def _name_place(function: Function, called: str) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"The tool '{called}' ({code.co_filename}:{code.co_firstlineno})" if code else f"The tool '{called}'"
