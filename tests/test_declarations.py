"""A wrong declaration is refused when it is made, in words that say the fix."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

import callboard.agents.builtin  # noqa: F401 - whose skills have settings
from callboard import Agent, Callboard, OpenAICompatible, Principal, RunContext, Settings, Skill, tool
from callboard.errors import AgentError, CallboardError
from callboard.testing import Call, FakeModel, client
from callboard_protocol import Event, Message


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SKILL = Skill("arithmetic", "Adds.", tools=[tool(add)])

# Without their types: every declaration here is a mistake that mypy would find.
make_agent: Any = Agent
make_board: Any = Callboard
make_settings: Any = Settings


class Own:
    """An agent written by hand, in which each test breaks one thing."""

    agent_id = name = description = "own"

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        yield Message(content=context.run_id)


def changed(**attributes: Any) -> Any:
    """Return an object of a class like `Own` with these attributes, and without those that are None."""
    kept = {name: getattr(Own, name) for name in ("agent_id", "name", "description", "run")} | attributes
    return type("Own", (), {name: value for name, value in kept.items() if value is not None})()


async def returns_a_text(self: Any, context: RunContext) -> str:
    return "text"


async def takes_nothing(self: Any) -> AsyncIterator[Event]:
    yield Message(content="text")


def knows(connection: HTTPConnection) -> Principal:
    return Principal("ann")


async def takes_no_connection() -> Principal:
    return Principal("ann")


async def tells(run: object, what: object) -> None:
    pass


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: make_settings(max_run=1), r"no setting max_run: did you mean max_runs\?"),
    (lambda: make_settings(home_assistant_token="t"), "give it to the skill"),
    (lambda: make_agent("x", model="gpt"), r"model='gpt': give OpenAICompatible\("),
    (lambda: make_agent("x", model=OpenAICompatible), r"give OpenAICompatible\("),
    (lambda: make_agent("x", "d", [add]), r"functions and tools belong in tools=\[…\]"),
    (lambda: make_agent("x", "d", ["clock"]), r"skills=\['clock'\]: give a list of skills"),
    (lambda: make_agent("x", "d", tools=["add"]), r"tools=\['add'\]: give a list of functions"),
    (lambda: make_agent("x", "d", tools=[SKILL]), r"skills belong in skills=\[…\]"),
    (lambda: make_agent("x", "d", tools=[lambda a: a]), "docstring"),
    (lambda: make_agent("x", "d", [SKILL], tools=[add]), "two tools named 'add'"),
    (lambda: make_agent("x", [SKILL]), "description=.*: give a text"),
    (lambda: make_agent("x", suggestions="Hello"), r"suggestions='Hello': give a list of texts"),
    (lambda: make_agent("x", icon="icon.png"), "data:image/png;base64"),
    (lambda: make_board([changed(suggestions="Hello")]), "suggestions='Hello': give a list of texts"),
    (lambda: make_agent("x", confirm="send_*"), r"confirm='send_\*': give a list of texts"),
    (lambda: make_agent("x", instructions="Be brief."), r"has no argument instructions: did you mean prompt\?"),
    (lambda: make_agent("x", tool=[add]), r"has no argument tool: did you mean tools\?"),
    (lambda: make_agent("x", colour="red"), "has no argument colour: it takes agent_id, description, skills"),
    (lambda: make_agent("x", limits=5), r"Limits\(max_tool_calls=…\)"),
    (lambda: make_agent("x", tool_format="jason"), "give one of auto, native"),
    (lambda: make_board(Agent("x")), r"not x: write Callboard\(\[agent\]\)"),
    (lambda: make_board([Own]), r"Own is a class: .* Own\(…\)"),
    (lambda: make_board([add]), r"function add is no agent"),
    (lambda: make_board([Agent("x"), Agent("x")]), "two agents with the id 'x'"),
    (lambda: make_board(model="gpt"), r"The application has model='gpt': give OpenAICompatible"),
    (lambda: make_board(authenticate=Principal("ann")), "give a function"),
    (lambda: make_board(authenticate=knows), "write `async def knows`"),
    (lambda: make_board(authenticate=takes_no_connection), "must take the connection"),
    (lambda: make_board(store="sqlite:///x.db"), r"Store\(url\)"),
    (lambda: make_board(settings={"max_runs": 1}), r"Settings\(max_runs=…\)"),
    (lambda: make_board(observers=[tells]), "plain functions"),
    (lambda: make_board([changed(description=None)]), "'own' has description=None: give a text"),
    (lambda: make_board([changed(agent_id="two words")]), "cannot have the id 'two words'"),
    (lambda: make_board([changed(run=None)]), r"has no run\(\)"),
    (lambda: make_board([changed(run=returns_a_text)]), r"yield Message\(content=…\)"),
    (lambda: make_board([changed(run=lambda _, context: "text")]), r"async def run\(self, context\)"),
    (lambda: make_board([changed(run=takes_nothing)]), r"write run\(self, context\)"),
]


@pytest.mark.parametrize(("declare", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_declaration_is_refused_with_the_fix(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(CallboardError, match=words):
        declare()


def test_a_key_in_the_place_of_its_function_is_not_repeated() -> None:
    with pytest.raises(CallboardError, match=r"authenticate=api_key\(…\)") as refused:
        make_board(authenticate="my-secret-key")
    assert "my-secret-key" not in str(refused.value)


def test_an_agent_of_another_framework_is_refused_with_its_adapter() -> None:
    foreign = type("Agent", (), {"__module__": "pydantic_ai.agent", "run": add})()
    with pytest.raises(AgentError, match=r"pydantic_ai\.from_pydantic_ai\(agent\)"):
        Callboard([foreign])


def test_plain_functions_and_tools_are_an_agents_own_beside_its_skills(tmp_path: Path) -> None:
    @tool(name="double_it")
    def double(a: int) -> int:
        """Double a number."""
        return 2 * a

    def negate(a: int) -> int:
        """Negate a number."""
        return -a

    agent = Agent("clerk", "Calculates.", [SKILL], "Be brief.", tools=[double, negate])
    assert [one.name for one in agent.tools] == ["add", "double_it", "negate"]
    model = FakeModel([Call("double_it", a=2), Call("negate", a=3)], "Done.")
    with client(Callboard([agent], model=model, settings=Settings(data_dir=tmp_path))) as callboard:
        assert callboard.run("Go.").results == {"double_it": "4", "negate": "-3"}
    assert model.requests[0].messages[0] == {"role": "system", "content": "Be brief."}
