"""The columns of the suite."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from callboard.agents import AgentLike
from tests.frameworks import agno_agents, builtin_loop, langgraph_agents, openai_agents_stage, pydantic_ai_agents
from tests.frameworks.stage import Deviation, Framework
from tests.frameworks.toolbox import PICTURE_URL, Toolbox


@dataclass(frozen=True, slots=True)
class Column:
    """A framework, which is imported when a test creates an agent of it."""

    name: str
    module: Any
    deviations: Mapping[str, Deviation] = field(default_factory=dict)

    def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AbstractAsyncContextManager[AgentLike]:
        made: Framework = self.module.with_tools(*(self.module.tool_named(name, toolbox) for name in tools))
        return made.agent(base_url, tools, toolbox)


AGNO = Column(
    "Agno",
    agno_agents,
    {
        "arguments of a wrong type": Deviation(
            "Agno checks types as it calls the tool: `tool_failed`",
            expected=["call 1 add {'a': 'two', 'b': 3}", "failed 1 tool_failed", "say I cannot.", "done stop"],
        ),
        "a call without an id": Deviation("the model is told an id that Agno makes", own_ids=True),
        "two calls with one id": Deviation("the model is told an id that Agno makes", own_ids=True),
        "a picture of the user's": Deviation(
            "Agno puts a message's words before its pictures", sent=[f"user go{PICTURE_URL}"]
        ),
        "an id that comes again": Deviation("the model is told an id that Agno makes", own_ids=True),
    },
)
LANGGRAPH = Column(
    "LangGraph",
    langgraph_agents,
    {
        "reasoning": Deviation(
            "langchain-openai drops the reasoning of chat completions", expected=["say Yes!", "done stop"]
        ),
        "a second turn, with a system message of the client's": Deviation(
            "the client's is a second system message, after the graph's own",
            sent=[
                *("system Answer in verse.", "user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5"),
                *("assistant It is 5.", "user what was it?"),
            ],
        ),
    },
)
PYDANTIC_AI = Column(
    "pydantic-ai",
    pydantic_ai_agents,
    {
        "arguments that are no JSON": Deviation(
            "the model is told its arguments as a text under `INVALID_JSON`",
            sent=["user go", "assistant calls add {'INVALID_JSON': '{\"a\": 2, \"b\": oops'}", "tool …"],
        ),
    },
)
FRAMEWORKS = (
    Column("built-in", builtin_loop),
    AGNO,
    PYDANTIC_AI,
    LANGGRAPH,
    Column("OpenAI Agents", openai_agents_stage),
)
