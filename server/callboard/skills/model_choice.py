"""The `model` skill: chooses which model of the server's endpoint answers in a chat."""

from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal, assert_never

from callboard.calls import ToolContext, tool
from callboard.errors import ModelError, ToolError, UnknownChat
from callboard.models import ModelEndpoint
from callboard.skills.actions import require
from callboard.skills.skill import Skill
from callboard.storage.sql.chats import Chats

MAX_LISTED = 100
NEAREST = 5


@tool(name="model")
async def model(
    action: Literal["list", "current", "switch"],
    context: ToolContext,
    name: str | None = None,
) -> dict[str, Any]:
    """List the models, show which one answers in this chat, and switch it.

    list returns the names of the models; current returns the model of this chat; switch chooses another model for this
    chat, from the user's next message on. Switch only when the user asks for it. An agent that was built with its own
    model keeps that one.

    Args:
        action: The action to perform.
        name: For switch: a model exactly as list returns it. For list: only names that contain this text.
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
        raise ToolError("This conversation is not a saved chat, and the choice is kept per chat: save the chat first.")
    names = await _list_names(context)
    if name not in names:
        similar = get_close_matches(name, names, NEAREST, 0.3)
        hint = f"did you mean {', '.join(similar)}?" if similar else "use list to see the models."
        raise ToolError(f"The endpoint lists no model '{name}': {hint}")
    # The server's default is not stored, so that the chat follows the server's settings.
    chosen = None if name == await _find_default(context) else name
    try:
        await _chats(context).choose_model(context.chat_id, chosen)
    except UnknownChat as error:
        raise ToolError("This server does not store this chat, so no model can be chosen for it.") from error
    return {"model": name, "from": "the next message on"}


async def _find_default(context: ToolContext) -> str:
    """Return the server's model. If none was chosen yet, that is the first model that the endpoint lists."""
    if named := context.services.model.name:
        return named
    return next(iter(await _list_names(context)), "")


async def _list_names(context: ToolContext) -> list[str]:
    endpoint = context.services.model
    if not isinstance(endpoint, ModelEndpoint):
        raise ToolError("No model can be chosen: this server has no endpoint (CALLBOARD_MODEL_BASE_URL).")
    try:
        return await endpoint.list_names()
    except ModelError as error:
        raise ToolError(str(error)) from error


def _list(names: list[str], part: str | None) -> dict[str, Any]:
    matching = [name for name in names if not part or part.lower() in name.lower()]
    left_out = len(matching) - MAX_LISTED
    hint = {"left_out": left_out, "hint": "Give a part of the name."} if left_out > 0 else {}
    return {"models": matching[:MAX_LISTED], **hint}


def _chats(context: ToolContext) -> Chats:
    return context.services.store.chats(context.user.id if context.user else None)


class ModelChoice(Skill):
    """The choice of a chat's model: the tool `model`."""

    def __init__(self) -> None:
        super().__init__("model", "Lists the models, and switches the model of this chat.", tools=(model,))
