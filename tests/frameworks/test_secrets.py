"""Secrets in results of frameworks' own classes, and in exceptions, do not reach the model."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from tests.collecting import TESTS_RUN
from tests.frameworks.scenario import calls, says, scenario
from tests.frameworks.stage import Framework, perform

if TESTS_RUN:
    import agents
    from agno.tools.function import ToolResult as AgnoToolResult
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import InjectedToolCallId, tool
    from langgraph.types import Command
    from pydantic_ai import ToolReturn

    from tests.frameworks import agno_agents, langgraph_agents, openai_agents_stage, pydantic_ai_agents

    def agno_result() -> AgnoToolResult:
        """Gives an object of Agno's."""
        return AgnoToolResult(content=f"the key is {KEY}")

    def langgraph_message(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Gives an object of LangGraph's."""
        return Command(update={"messages": [ToolMessage(f"the key is {KEY}", tool_call_id=tool_call_id)]})

    def pydantic_ai_return() -> ToolReturn:
        """Gives an object of pydantic-ai's."""
        return ToolReturn(Login(host="h", key=KEY), content=[f"the key is {KEY}"])

    @agents.function_tool
    def sdk_text() -> agents.ToolOutputText:
        """Gives an object of the SDK's."""
        return agents.ToolOutputText(text=f"the key is {KEY}")


KEY = "sk-of-the-house-4711"


class Login(BaseModel):
    """An object that a tool returns."""

    host: str
    key: str


def login() -> Login:
    """Gives an object of its own."""
    return Login(host="h", key=KEY)


def fails() -> str:
    """Fails."""
    raise ValueError(f"{KEY} was refused")


async def fails_later() -> AsyncIterator[str]:
    """Fails while it is iterated."""
    yield "first"
    raise ValueError(f"{KEY} was refused")


MADE: dict[str, Callable[[], Framework]] = {
    "Agno: agno_result": lambda: agno_agents.solo(agno_result),
    "Agno: login": lambda: agno_agents.solo(login),
    "Agno: fails": lambda: agno_agents.solo(fails),
    "Agno: fails_later": lambda: agno_agents.solo(fails_later),
    "LangGraph: langgraph_message": lambda: langgraph_agents.solo(tool(langgraph_message)),
    "LangGraph: login": lambda: langgraph_agents.solo(tool(login)),
    "LangGraph: fails": lambda: langgraph_agents.solo(tool(fails)),
    "pydantic-ai: pydantic_ai_return": lambda: pydantic_ai_agents.solo(pydantic_ai_return),
    "pydantic-ai: login": lambda: pydantic_ai_agents.solo(login),
    "pydantic-ai: fails": lambda: pydantic_ai_agents.solo(fails),
    "OpenAI Agents: sdk_text": lambda: openai_agents_stage.solo(sdk_text),
    "OpenAI Agents: login": lambda: openai_agents_stage.solo(agents.function_tool(login)),
    "OpenAI Agents: fails": lambda: openai_agents_stage.solo(agents.function_tool(fails)),
}


@pytest.mark.parametrize("made", MADE)
async def test_secrets_in_objects_do_not_reach_model(made: str, tmp_path: Path) -> None:
    _, _, name = made.partition(": ")
    script = [calls((name, "{}")), says("Done.")]
    seen, _ = await perform(MADE[made](), scenario(script), tmp_path, secrets=[KEY])
    told = [message for message in seen.requests[-1]["messages"] if message["role"] in ("tool", "user")]
    assert "[secret]" in str(told)
    assert KEY not in str(seen.requests)
    assert KEY not in str(seen.events)
