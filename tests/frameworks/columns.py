"""The columns of the suite."""

from tests.frameworks.builtin_loop import BuiltinLoop
from tests.frameworks.stage import Framework
from tests.frameworks.with_agno import WithAgno
from tests.frameworks.with_langgraph import WithLangGraph
from tests.frameworks.with_openai_agents import WithOpenAIAgents
from tests.frameworks.with_pydantic_ai import WithPydanticAI

FRAMEWORKS: tuple[Framework, ...] = (BuiltinLoop(), WithAgno(), WithPydanticAI(), WithLangGraph(), WithOpenAIAgents())
