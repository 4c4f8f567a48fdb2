"""The result of a tool, and how any return value becomes one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json, to_jsonable_python

from callboard.errors import ToolError
from callboard.text import storable
from callboard_protocol import Plan, Source


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool that returns more than text.

    The model reads `text`, or `data` as JSON if `text` is empty. `files` are shown under the call, in Open WebUI's
    form (`{"type": "image", "url": …}`). `embeds` are HTML pages or URLs that are shown in frames. `sources` are
    citations (`Source`, or its fields as a dict). `plan` replaces the plan of the agent's work. `error` says why the
    call failed; the other fields are ignored then.
    """

    text: str = ""
    files: tuple[Mapping[str, Any], ...] = ()
    embeds: tuple[str, ...] = ()
    sources: tuple[Source | Mapping[str, Any], ...] = ()
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
        case _:
            return ToolResult(_write_json(value))


def _check(result: ToolResult) -> ToolResult:
    # Checked here, so that a wrong field is an error of this call and not of the run.
    if result.error:
        raise ToolError(storable(str(result.error)))
    if not isinstance(result.text, str):
        raise TypeError(f"ToolResult.text must be a string, not {type(result.text).__name__}")
    if isinstance(result.embeds, str) or not all(isinstance(embed, str) for embed in result.embeds):
        raise TypeError("ToolResult.embeds must be a sequence of strings")
    files = to_jsonable_python(list(result.files))
    if not all(isinstance(file, dict) for file in files):
        raise TypeError("ToolResult.files must be a sequence of dicts")
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
