"""The built-in kind of agent: prompts, skills, limits, background tasks."""

from collections.abc import Iterator

import pytest

import callboard
from callboard._formats import FormatChoice, ToolFormat
from callboard.agents import Agent, Limits
from callboard.agents.agent import with_system_prompt
from callboard.calls import ToolContext, tool
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
            yield TextDelta("answer")


SKILL = Skill("people", "Knows people.", "Be polite.", (who,))


def test_the_system_prompt_is_the_base_prompt_and_the_skills_fragments() -> None:
    agent = Agent("a", skills=(SKILL, Skill("mute", "Says nothing.")), prompt="You are an usher.\n")
    assert agent.build_system_prompt() == "You are an usher.\n\nBe polite."
    assert Agent("a").build_system_prompt() == ""


def test_the_clients_own_system_message_is_kept_after_it_and_one_is_all_there_is() -> None:
    hello = {"role": "user", "content": "hello"}
    own = {"role": "system", "content": "Answer in Latin."}
    parts = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    merged = {"role": "system", "content": "Base.\n\nAnswer in Latin.\n\nBe brief."}
    assert with_system_prompt("Base.", [own, parts, hello]) == [merged, hello]
    assert with_system_prompt("Base.", [hello]) == [{"role": "system", "content": "Base."}, hello]
    assert with_system_prompt("", [own, hello]) == [own, hello]
    assert with_system_prompt("", [hello]) == [hello]


def test_an_agent_is_called_by_its_id_where_it_has_no_name() -> None:
    assert (Agent("usher").name, Agent("usher", name="The usher").name) == ("usher", "The usher")


@pytest.mark.parametrize("agent_id", ["", "two words", "ü", "x" * 129])
def test_ids_that_a_model_list_cannot_hold_are_refused(agent_id: str) -> None:
    with pytest.raises(AgentError, match="cannot have the id"):
        Agent(agent_id)


def test_two_tools_of_one_name_are_refused_naming_both_skills() -> None:
    with pytest.raises(AgentError, match=r"'who'.*'people'.*'others'"):
        Agent("a", skills=(SKILL, Skill("others", "Knows others.", tools=(who,))))


def test_a_skill_takes_tools_only() -> None:
    with pytest.raises(AgentError, match="write @tool"):
        Skill("s", "d", tools=(test_a_skill_takes_tools_only,))  # type: ignore[arg-type] # the mistake under test


async def test_a_run_calls_tools_for_its_user_with_the_prompt_in_place(context_for: ContextFor) -> None:
    model = Recording()
    agent = Agent("a", skills=(SKILL,), limits=Limits(max_tool_calls=1))
    events = await play(agent, context_for("hi", model=model, chat_id="c", user=User(id="u", name="Ada")))
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["c Ada"]
    assert model.requests[0].messages[0] == {"role": "system", "content": "Be polite."}


async def test_model_and_limits_of_the_agent_override_the_servers(context_for: ContextFor) -> None:
    server = Recording()
    own = Recording()
    agent = Agent("a", skills=(SKILL,), model=own, limits=Limits(max_tool_calls=1))
    events = await play(agent, context_for("hi", model=server, user=User(id="u"), limits=Limits(max_tool_calls=9)))
    assert server.requests == []
    assert sum(isinstance(event, ToolCallError) for event in events) == 1
    assert events[-1] == Done(finish_reason="max_turns")


async def test_without_limits_of_its_own_the_servers_hold(context_for: ContextFor) -> None:
    context = context_for("hi", model=Recording(), user=User(id="u"), limits=Limits(max_tool_calls=2))
    events = await play(Agent("a", skills=(SKILL,)), context)
    assert sum(isinstance(event, ToolCallComplete) for event in events) == 2


async def test_a_background_task_gets_no_tools_and_no_prompt(context_for: ContextFor) -> None:
    model = Recording()
    agent = Agent("a", skills=(SKILL,), prompt="You are an usher.")
    events = await play(agent, context_for("### Task: title", model=model, task="title_generation"))
    assert text_of(events) == "answer"
    assert {event.type for event in events} == {"message", "usage", "done"}
    assert list(model.requests[0].messages) == [{"role": "user", "content": "### Task: title"}]


def test_callboard_exports_all_names_that_an_agent_file_needs() -> None:
    names = {"Agent", "Skill", "ToolContext", "ToolResult", "register", "report_status", "tool"}
    assert names <= set(callboard.__all__)
    assert all(hasattr(callboard, name) for name in callboard.__all__)


def test_a_skill_cannot_have_a_limit_that_allows_nothing() -> None:
    with pytest.raises(AgentError, match="max_tool_calls"):
        Skill("home", "Switches.", tools=(who,), max_tool_calls=0)


async def test_a_skills_own_limit_holds_for_its_tools(context_for: ContextFor) -> None:
    @tool
    def switch(state: str) -> str:
        """Switches a light."""
        return state

    def script(request: ModelRequest) -> Iterator[ModelDelta]:
        played = sum(message["role"] == "tool" for message in request.messages)
        if played < 4:
            yield ToolCallDelta(0, None, "switch", f'{{"state": "{played}"}}')
        else:
            yield TextDelta("Three times.")

    home = Skill("home", "Switches.", tools=(switch,), max_tool_calls=3)
    events = await play(Agent("a", skills=(home,), model=ScriptedModel(script)), context_for("go"))
    assert sum(isinstance(event, ToolCallComplete) for event in events) == 3
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["limit"]
    assert text_of(events) == "Three times."


@pytest.mark.parametrize(
    ("agents", "servers", "asked_in_text"),
    [(None, "react", True), (None, "auto", False), ("native", "react", False), ("xml", "native", True)],
)
async def test_the_servers_format_holds_unless_the_agent_has_its_own(
    context_for: ContextFor, agents: ToolFormat | None, servers: ToolFormat, asked_in_text: bool
) -> None:
    model = Recording()
    agent = Agent("a", skills=(SKILL,), tool_format=agents)
    await play(agent, context_for("go", model=model, formats=FormatChoice(servers), user=User(id="u", name="Ada")))
    assert bool(model.requests[0].stops) is asked_in_text


async def test_observed_native_calls_of_a_model_count_for_all_agents_with_it(context_for: ContextFor) -> None:
    formats = FormatChoice("react")
    written = '{"name": "who", "arguments": {}}'
    native = Recording()
    in_text = ScriptedModel(lambda _: [TextDelta(written)], native.name)
    by_name = {"native": native, "in text": in_text}
    called = []
    for name in ("in text", "native", "in text"):
        context = context_for("go", formats=formats, user=User(id="u", name="Ada"))
        events = await play(Agent(name.replace(" ", "-"), skills=(SKILL,), model=by_name[name]), context)
        called.append(any(isinstance(event, ToolCallError | ToolCallComplete) for event in events))
    assert called == [True, True, False]
    assert text_of(events) == written


async def test_the_servers_format_is_not_for_a_model_that_the_agent_brings(context_for: ContextFor) -> None:
    model = Recording()
    context = context_for("go", formats=FormatChoice("react"), user=User(id="u", name="Ada"))
    await play(Agent("a", skills=(SKILL,), model=model), context)
    assert model.requests[0].tools
