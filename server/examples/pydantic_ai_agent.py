"""An agent of pydantic-ai in Open WebUI: `CALLBOARD_AGENTS=server/examples/pydantic_ai_agent.py callboard serve`."""

from os import environ as env

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from callboard import register, report_status
from callboard.frameworks.pydantic_ai import from_pydantic_ai

provider = OpenAIProvider(env["CALLBOARD_MODEL_BASE_URL"], env.get("CALLBOARD_MODEL_API_KEY", "none"))
agent = Agent(OpenAIChatModel(env["CALLBOARD_MODEL"], provider=provider), name="library")


@agent.tool_plain
async def find_books(subject: str) -> list[dict[str, str]]:
    """Finds the library's books on a subject."""
    report_status("processing", f"looking for {subject}", progress=50)
    return [{"title": f"All about {subject}", "shelf": "B4"}, {"title": f"{subject}, a history", "shelf": "H1"}]


@agent.tool_plain(requires_approval=True)
def borrow_book(title: str) -> str:
    """Borrows a book, once the user has agreed."""
    return f"{title} is yours for four weeks."


register(from_pydantic_ai(agent, name="Librarian", description="Finds and lends books."))
