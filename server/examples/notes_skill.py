"""A skill that keeps notes, outside of Callboard: with tools, a setting, a route and stored data.

CALLBOARD_AGENTS=server/examples/notes_skill.py CALLBOARD_NOTES_MOST=50 callboard serve
curl 'http://127.0.0.1:8700/skills/notes/all?user_id=ann'
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from callboard import Agent, Services, Skill, ToolContext, ToolError, register, tool
from callboard.skills import SkillSettings, SkillState


class NotesSettings(SkillSettings):
    """The settings of the skill."""

    notes_most: int = Field(default=100, ge=1, description="Notes that a user may keep")


class NotesDesk:
    """The tools and the route of one application."""

    def __init__(self, services: Services, most: int) -> None:
        self.services = services
        self.most = most

    @tool
    async def write_note(self, context: ToolContext, title: str, text: str) -> str:
        """Write a note, or replace the note with this title.

        Args:
            title: The note's title.
            text: The whole text of the note.
        """
        notes = self.services.store.records("notes", context.user_id)
        kept = await notes.find(limit=self.most)
        if len(kept) == self.most and title not in [note.key for note in kept]:
            raise ToolError(f"The limit of {self.most} notes is reached: replace one of them.")
        await notes.put(title, text)
        return f"Noted: {title}."

    @tool(read_only=True)
    async def read_notes(self, context: ToolContext) -> dict[str, str]:
        """Return the user's notes by their titles."""
        return await self.all_notes(context.user_id)

    async def all_notes(self, user_id: str) -> dict[str, str]:
        """Return the notes of a user by their titles."""
        kept = await self.services.store.records("notes", user_id).find(limit=self.most)
        return {note.key: note.value for note in kept}

    async def show_notes(self, request: Request) -> JSONResponse:
        """Answer `GET /skills/notes/all?user_id=…`."""
        return JSONResponse(await self.all_notes(request.query_params.get("user_id", "")))


class Notes(Skill):
    """Keeps notes of each user, and serves them to other programs at `/skills/notes/all`."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        super().__init__("notes", "Keeps notes.", "You keep the user's notes.", lifespan=self.open_desk)

    @classmethod
    def from_settings(cls) -> Self:
        """Return the skill with the settings of the environment (`CALLBOARD_NOTES_MOST`)."""
        return cls(NotesSettings.load().notes_most)

    @asynccontextmanager
    async def open_desk(self, services: Services) -> AsyncIterator[SkillState]:
        """Yield the tools and the route of one application."""
        desk = NotesDesk(services, self.most)
        yield SkillState(tools=[desk.write_note, desk.read_notes], routes=[Route("/all", desk.show_notes)])


register(Agent("notary", "Keeps your notes.", [Notes.from_settings()], name="Notary"))
