"""Functions that the client of a run offers: the model may call them, and the client runs them."""

from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import uuid4

from callboard.calls.tool import Tool
from callboard.errors import RequestError
from callboard_protocol import EXTERNAL_ID_PREFIX, OfferedFunction


@dataclass(frozen=True, slots=True)
class ClientTool(Tool):
    """A tool that ends the run when the model calls it; `strict` is OpenAI's, passed on to the model."""

    strict: bool | None = None

    @classmethod
    def of(cls, offered: OfferedFunction) -> "ClientTool":
        """Return the tool for a function as a client offered it. Raises `RequestError` where no model can call it."""
        parameters = {"type": "object", "properties": {}, **offered.parameters}
        if parameters["type"] != "object":
            raise RequestError(f"tools: the parameters of {offered.name} must be a JSON schema of type 'object'")
        return cls(
            name=offered.name,
            # OpenAI's clients may leave it out, and a model knows the name at least.
            description=offered.description.strip() or offered.name,
            parameters=parameters,
            function=_is_not_run_here,
            # A schema of anybody's may hold patterns that take for ever: the client checks its arguments itself.
            read_arguments=dict,
            strict=offered.strict,
        )

    def schema(self) -> dict[str, Any]:
        """Return the function as the client offered it."""
        schema = Tool.schema(self)
        return schema if self.strict is None else {**schema, "function": {**schema["function"], "strict": self.strict}}


def new_external_id() -> str:
    """Return an id that nobody can guess: with it the client's next request finds what the run has done."""
    return f"{EXTERNAL_ID_PREFIX}{uuid4().hex}"


def _is_not_run_here() -> NoReturn:
    raise AssertionError("the client's functions are the client's to run")
