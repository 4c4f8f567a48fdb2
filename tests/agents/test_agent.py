"""The built-in kind of agent: prompts, skills, limits, background tasks."""

from collections.abc import Callable, Iterator

import pytest

from callboard._formats import FormatChoice, ToolFormat
from callboard.agents import Agent
from callboard.agents.agent import with_system_prompt
from callboard.calls import ToolContext, tool
from callboard.calls.limits import Limits
from callboard.errors import AgentError
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta, ToolCallDelta
from callboard.skills import Skill
from callboard_protocol import Done, ToolCallComplete, ToolCallError, User
from tests.agents.conftest import ContextFor, play, text_of


@tool
def who(context: ToolContext) -> str:
    """Says whom it serves."""
    assert context.user is not None
    return f"{context.chat_id} {context.user.name}"


class Recording(ScriptedModel):
    """Calls `who` whenever it may, and keeps its requests."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.requests: list[ModelRequest] = []

    def _answer(self, request: ModelRequest) -> Iterator[ModelDelta]:
        self.requests.append(request)
        if request.tools:
            yield ToolCallDelta(0, "a", "who", "{}")
        else:
            yield TextDelta("<think>hm</think>\nanswer")


SKILL = Skill("people", "Knows people.", "Be polite.", (who,))


def test_the_clients_own_system_message_is_kept_after_it_and_one_is_all_there_is() -> None:
    hello = {"role": "user", "content": "hello"}
    own = {"role": "system", "content": "Answer in Latin."}
    parts = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    merged = {"role": "system", "content": "Base.\n\nAnswer in Latin.\n\nBe brief."}
    assert with_system_prompt("Base.", [own, parts, hello]) == [merged, hello]
    assert with_system_prompt("Base.", [hello]) == [{"role": "system", "content": "Base."}, hello]
    assert with_system_prompt("", [own, hello]) == [own, hello]
    assert with_system_prompt("", [hello]) == [hello]


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        *(
            (lambda agent_id=agent_id: Agent(agent_id), "cannot have the id")
            for agent_id in ("", "two words", "x" * 129)
        ),
        (lambda: Agent("a", skills=(SKILL, Skill("others", "d", tools=(who,)))), r"'who'.*'people'.*'others'"),
        (lambda: Skill("s", "d", tools=(len,)), "write @tool"),  # type: ignore[arg-type] # the mistake under test
        (lambda: Skill("s", "d", tools=(who,), max_tool_calls=0), "max_tool_calls"),
    ],
)
def test_a_wrong_declaration_is_refused(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(AgentError, match=words):
        declare()


async def test_a_run_calls_tools_for_its_user_with_the_prompt_in_place(context_for: ContextFor) -> None:
    model = Recording()
    skills = (SKILL, Skill("mute", "Says nothing."))
    agent = Agent("a", skills=skills, prompt="You are an usher.\n", limits=Limits(max_tool_calls=1))
    events = await play(agent, context_for("hi", model=model, chat_id="c", user=User(id="u", name="Ada")))
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["c Ada"]
    assert model.requests[0].messages[0] == {"role": "system", "content": "You are an usher.\n\nBe polite."}


async def test_model_and_limits_of_the_agent_override_the_servers(context_for: ContextFor) -> None:
    server = Recording()
    own = Recording()
    agent = Agent("a", skills=(SKILL,), model=own, limits=Limits(max_tool_calls=1))
    events = await play(agent, context_for("hi", model=server, user=User(id="u"), limits=Limits(max_tool_calls=9)))
    assert server.requests == []
    assert sum(isinstance(event, ToolCallError) for event in events) == 1
    assert events[-1] == Done(finish_reason="max_turns")


async def test_a_background_task_gets_no_tools_and_no_prompt(context_for: ContextFor) -> None:
    model = Recording()
    agent = Agent("a", skills=(SKILL,), prompt="You are an usher.")
    events = await play(agent, context_for("### Task: title", model=model, task="title_generation"))
    assert text_of(events) == "answer"
    assert {event.type for event in events} == {"message", "usage", "done"}
    assert list(model.requests[0].messages) == [{"role": "user", "content": "### Task: title"}]


@pytest.mark.parametrize(
    ("agents", "servers", "asked_in_text"),
    [(None, "react", True), (None, "auto", False), ("xml", "native", True)],
)
async def test_the_servers_format_holds_unless_the_agent_has_its_own(
    context_for: ContextFor, agents: ToolFormat | None, servers: ToolFormat, asked_in_text: bool
) -> None:
    model = Recording()
    agent = Agent("a", skills=(SKILL,), tool_format=agents)
    await play(agent, context_for("go", model=model, formats=FormatChoice(servers), user=User(id="u", name="Ada")))
    assert bool(model.requests[0].stops) is asked_in_text
