"""The `model` skill: which model of the server's endpoint answers in a chat."""

from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal, assert_never

from callboard.calls import ToolContext, tool
from callboard.errors import ModelError, ToolError, UnknownChat
from callboard.models import ModelEndpoint
from callboard.skills.actions import require
from callboard.skills.skill import Skill
from callboard.storage import Chats

MAX_LISTED = 100
NEAREST = 5


@tool(name="model")
async def model(
    action: Literal["list", "current", "switch"],
    context: ToolContext,
    name: str | None = None,
) -> dict[str, Any]:
    """Says which models there are and which one answers in this chat, and switches it.

    list gives the names of the models; current says which one this chat uses; switch chooses another for this chat
    from the user's next message on. Switch only when the user asks for it. An agent that was built on a model of
    its own keeps that one.

    Args:
        action: What to do.
        name: For switch: a model exactly as list gives it. For list: only names that hold this.
    """
    match action:
        case "list":
            return _list(await _list_names(context), name)
        case "current":
            chosen: str | None = None
            if context.chat_id is not None:
                with suppress(UnknownChat):
                    chosen = await _chats(context).chosen_model(context.chat_id)
            return {"model": chosen or await _find_default(context), "chosen_for_this_chat": chosen is not None}
        case "switch":
            return await _switch(require(name, "name", action), context)
        case _:
            assert_never(action)


async def _switch(name: str, context: ToolContext) -> dict[str, Any]:
    if context.chat_id is None:
        raise ToolError("This conversation is no saved chat, and the choice is kept per chat: save the chat first.")
    names = await _list_names(context)
    if name not in names:
        near = get_close_matches(name, names, NEAREST, 0.3)
        hint = f"did you mean {', '.join(near)}?" if near else "list gives those there are."
        raise ToolError(f"The endpoint lists no model '{name}': {hint}")
    # What is the server's own choice follows the server's settings from now on.
    kept = None if name == await _find_default(context) else name
    try:
        await _chats(context).choose_model(context.chat_id, kept)
    except UnknownChat as error:
        raise ToolError("This chat is not kept on this server, so no model can be chosen for it.") from error
    return {"model": name, "from": "the next message on"}


async def _find_default(context: ToolContext) -> str:
    """Return the server's model; an endpoint that was not asked yet serves the first that it lists."""
    if named := context.services.model.name:
        return named
    return next(iter(await _list_names(context)), "")


async def _list_names(context: ToolContext) -> list[str]:
    endpoint = context.services.model
    if not isinstance(endpoint, ModelEndpoint):
        raise ToolError("There is no choice of models: this server has no endpoint (CALLBOARD_MODEL_BASE_URL).")
    try:
        return await endpoint.list_names()
    except ModelError as error:
        raise ToolError(str(error)) from error


def _list(names: list[str], part: str | None) -> dict[str, Any]:
    fitting = [name for name in names if not part or part.lower() in name.lower()]
    left_out = len(fitting) - MAX_LISTED
    hint = {"left_out": left_out, "hint": "Give a part of the name."} if left_out > 0 else {}
    return {"models": fitting[:MAX_LISTED], **hint}


def _chats(context: ToolContext) -> Chats:
    return context.services.store.chats(context.user.id if context.user else None)


class ModelChoice(Skill):
    """Choice of the model that answers in a chat: the tool `model`."""

    def __init__(self) -> None:
        super().__init__("model", "Says which models there are, and switches this chat's.", tools=(model,))
