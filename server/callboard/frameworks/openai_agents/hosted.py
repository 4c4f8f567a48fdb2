"""Tools that run at OpenAI's end (the Responses API only): their calls come with the answer, already run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openai.types.responses import (
    ResponseCodeInterpreterToolCall,
    ResponseFileSearchToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputItem,
)
from openai.types.responses.response_output_item import ImageGenerationCall, McpCall

from callboard.errors import ToolError
from callboard.frameworks.turn import Turn


@dataclass(frozen=True, slots=True)
class HostedCall:
    """A call that is over when it is known; `failure` is why it failed, where it did."""

    call_id: str
    name: str
    arguments: Mapping[str, Any] | str
    result: str = ""
    files: Sequence[Mapping[str, Any]] = ()
    failure: str = ""

    async def tell(self, turn: Turn) -> None:
        """Tells its start and its end."""
        await turn.start(self.call_id, self.name, self.arguments)
        if self.failure:
            turn.fail(self.call_id, ToolError(self.failure))
        else:
            turn.complete(self.call_id, self.result, self.files)


def hosted_call(item: ResponseOutputItem) -> HostedCall | None:
    """The call that a part of an answer is; None for all that is none of these."""
    match item:
        case ResponseFunctionWebSearch():
            action = item.action.model_dump(exclude_none=True) if item.action else {}
            return HostedCall(item.id, "web_search", action, "searched", failure=_failed(item.status))
        case ResponseFileSearchToolCall():
            found = [f"{one.filename}: {one.text}" for one in item.results or ()]
            queries = {"queries": item.queries}
            return HostedCall(item.id, "file_search", queries, "\n\n".join(found), failure=_failed(item.status))
        case ResponseCodeInterpreterToolCall():
            outputs = item.outputs or ()
            logs = "\n".join(one.logs for one in outputs if one.type == "logs")
            files = [{"type": "image", "url": one.url} for one in outputs if one.type == "image"]
            code = {"code": item.code or ""}
            return HostedCall(item.id, "code_interpreter", code, logs, files, _failed(item.status))
        case ImageGenerationCall():
            files = [{"type": "image", "url": f"data:image/png;base64,{item.result}"}] if item.result else []
            return HostedCall(item.id, "image_generation", {}, "drawn", files, _failed(item.status))
        case McpCall():
            error = item.error.model_dump_json() if item.error else ""
            return HostedCall(item.id, item.name, item.arguments, item.output or "", failure=error)
        case _:
            return None


def _failed(status: str) -> str:
    return "It failed at the model's end, which does not say why." if status == "failed" else ""
