"""Asks the user the questions of a framework's agent."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

from callboard.errors import ToolDenied
from callboard.frameworks.turn import AdapterTurn
from callboard_protocol import InputRequest

AGENT_ASKS = "The agent asks"
DECLINED = "Not run: the question was declined. Do not ask it again; ask what the user would like instead."


async def ask_user(
    turn: AdapterTurn,
    kind: Literal["confirmation", "input", "form"],
    message: str,
    call_id: str | None,
    *,
    title: str = AGENT_ASKS,
    schema: Mapping[str, object] | None = None,
    choices: Sequence[str] = (),
    other: bool = False,
) -> Any:
    """Ask the user a question that belongs to a call, and return the answer. For the parameters see `InputRequest`.

    Raises `ToolDenied` if the user declines to fill in a form, cannot be asked, or does not answer in time.
    """
    answer = await turn.ask(
        InputRequest(
            request_id=uuid4().hex,
            kind=kind,
            title=title,
            message=message,
            schema=dict(schema or {}),
            choices=tuple(choices),
            other=other,
            tool_call_id=call_id,
        )
    )
    if kind == "form" and answer is False:
        raise ToolDenied(DECLINED)
    return answer
