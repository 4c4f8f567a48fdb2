"""Functions of the client: the model may call them, and the client runs them."""

from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import uuid4

from callboard.calls.tool import Tool
from callboard.errors import RequestError
from callboard_protocol import EXTERNAL_ID_PREFIX, OfferedFunction


@dataclass(frozen=True, slots=True)
class ClientTool(Tool):
    """A function of the client. A call of it ends the run; `strict` is OpenAI's field, sent to the model."""

    strict: bool | None = None

    @classmethod
    def of(cls, offered: OfferedFunction) -> "ClientTool":
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
        """Return the function in the client's own form."""
        schema = Tool.schema(self)
        return schema if self.strict is None else {**schema, "function": {**schema["function"], "strict": self.strict}}


def new_external_id() -> str:
    """Return an id that cannot be guessed: the client's next request finds the run by it."""
    return f"{EXTERNAL_ID_PREFIX}{uuid4().hex}"


def _is_not_run_here() -> NoReturn:
    raise AssertionError("the client's functions are the client's to run")
