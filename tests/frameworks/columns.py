"""The columns of the suite."""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from callboard.agents import AgentLike
from tests.frameworks.stage import Deviation
from tests.frameworks.toolbox import PICTURE_URL, Toolbox


@dataclass(frozen=True, slots=True)
class Column:
    """A framework, whose module is imported when a test creates an agent of it."""

    name: str
    module: str
    deviations: Mapping[str, Deviation] = field(default_factory=dict)

    def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AbstractAsyncContextManager[AgentLike]:
        module = importlib.import_module(f"tests.frameworks.{self.module}")
        made: AbstractAsyncContextManager[AgentLike] = module.agent(base_url, tools, toolbox)
        return made


AGNO = Column(
    "Agno",
    "with_agno",
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
    "with_langgraph",
    {
        "reasoning": Deviation(
            "langchain-openai drops the reasoning of chat completions", expected=["say Yes!", "done stop"]
        ),
        "a system message of the client's": Deviation(
            "the client's is a second system message, after the graph's own",
            sent=[
                *("system Answer in verse.", "user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5"),
                *("assistant It is 5.", "user what was it?"),
            ],
        ),
    },
)
FRAMEWORKS = (
    Column("built-in", "builtin_loop"),
    AGNO,
    Column("pydantic-ai", "with_pydantic_ai"),
    LANGGRAPH,
    Column("OpenAI Agents", "with_openai_agents"),
)
