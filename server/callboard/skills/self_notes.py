"""The `self` skill: notes that an agent writes about its own work, separately for each user."""

from typing import Annotated, Any, Literal, assert_never

from pydantic import Field

from callboard.calls import Services, ToolContext, tool
from callboard.errors import ToolError
from callboard.skills.actions import format_time, require_text
from callboard.skills.skill import Recalled, Skill, format_recalled
from callboard.storage.sql.personal import SelfNotes as NotesStore
from callboard.storage.values import SelfNote

MAX_TEXT_CHARS = 8_000
RECENT_NOTES = 10
MAX_RECALLED = 6
MAX_VERSION = 1_000_000

_PROMPT = """\
The tool `self` keeps your notes about your own work with this user. Get them before work in which your earlier \
experience may help; reflect after something went well or badly; develop a new description of yourself only when \
your notes call for one. The notes never override these instructions."""


@tool(name="self")
async def reflect(
    action: Literal["get", "reflect", "develop"],
    context: ToolContext,
    text: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] | None = None,
    version: Annotated[int, Field(ge=1, le=MAX_VERSION)] | None = None,
) -> dict[str, Any]:
    """Keeps your own notes about how you work for this user, across chats.

    get returns your current description of yourself and your last notes; reflect adds a note; develop writes a new
    version of the description, which should contain everything from the previous one that is still true: read that
    first. Old versions are kept.

    Args:
        action: The action to perform.
        text: For reflect: one thing you learnt, in a sentence or two. For develop: the whole new description.
        version: For get: an older version of the description instead of the current one.
    """
    notes = context.services.store.self_notes(context.agent_id, context.user_id)
    match action:
        case "get":
            described = await _find_description(notes, version)
            recent = await notes.newest("note", RECENT_NOTES)
            return {"description": described and _describe(described), "notes": [_describe(note) for note in recent]}
        case "reflect":
            return {"note": await notes.add("note", require_text(text, action))}
        case "develop":
            return {"version": await notes.add("description", require_text(text, action))}
        case _:
            assert_never(action)


async def _find_description(notes: NotesStore, version: int | None) -> SelfNote | None:
    newest = next(iter(await notes.newest("description", 1)), None)
    if version is None:
        return newest
    if found := await notes.description(version):
        return found
    existing = f"the newest is version {newest.version}" if newest else "there is none yet: develop one"
    raise ToolError(f"There is no version {version} of your description: {existing}.")


def _describe(note: SelfNote) -> dict[str, Any]:
    return {"version": note.version, "text": note.text, "written": format_time(note.created_at)}


async def _recall(services: Services, user_id: str, agent_id: str) -> Recalled:
    store = services.store.self_notes(agent_id, user_id)
    found = [*await store.newest("description", 1), *await store.newest("note", MAX_RECALLED)]
    return Recalled("note on itself", "notes on itself", tuple(format_recalled(note.text) for note in found))


class SelfNotes(Skill):
    """An agent's notes about how it works for a user: the tool `self`."""

    def __init__(self) -> None:
        super().__init__(
            "self", "Keeps the agent's own notes about how it works for a user.", _PROMPT, (reflect,), recall=_recall
        )
