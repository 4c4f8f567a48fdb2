"""What several frameworks can do, each in its own way: one table for each function."""

import asyncio
import json
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, cast

import pytest

from callboard import register
from callboard.agents import AgentLike, RunContext
from callboard.agents.context import OnOwnerLoss
from callboard.agents.registry import Registry
from callboard.errors import AgentError
from callboard.storage import Store
from callboard_protocol import Error, InputRequest, ToolCallArgsDelta, ToolCallError, Usage
from tests.fakes.openai_server import Answer, Body, chunks, text
from tests.frameworks import agno_agents, langgraph_agents, openai_agents_stage, pydantic_ai_agents
from tests.frameworks.scenario import ADD, MAX_TOOL_CALLS, calls, says, scenario
from tests.frameworks.stage import CHAT_ID, USER, Framework, Performance, perform
from tests.frameworks.toolbox import Toolbox
from tests.serving import ScriptedAgent

MODULES: dict[str, Any] = {
    "Agno": agno_agents,
    "pydantic-ai": pydantic_ai_agents,
    "LangGraph": langgraph_agents,
    "OpenAI Agents": openai_agents_stage,
}

# --- A tool that asks another agent: its calls and requests are the run's --------------------------------------------

WAYS = {
    "Agno": ("awaits", "passes_events_on", "in_a_thread", "in_a_thread_passes_events_on"),
    "pydantic-ai": ("awaits", "in_a_thread"),
    "LangGraph": ("awaits", "in_a_thread"),
    "OpenAI Agents": ("as_tool", "as_tool_streamed", "by_hand", "in_a_thread"),
}
EVERY_WAY = [(name, way) for name, ways in WAYS.items() for way in ways]
every_way = pytest.mark.parametrize(("name", "way"), EVERY_WAY)
awaited = pytest.mark.parametrize(("name", "way"), [one for one in EVERY_WAY if "thread" not in one[1]])


def asks_another(name: str, way: str) -> Framework:
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    made: Framework = MODULES[name].asks_another(add if "thread" in way else Toolbox().plain("add"), way=way)
    return made


def asks(body: Body) -> Answer:
    """The call of the tool, by the name that its argument has."""
    [argument] = body["tools"][0]["function"]["parameters"]["properties"]
    return calls(("ask_other", f'{{"{argument}": "help"}}'))


def is_the_other(body: Body) -> bool:
    return openai_agents_stage.offered(body) == ["add"]


def asks_and_adds(body: Body) -> Answer:
    ended = body["messages"][-1]["role"] == "tool"
    if is_the_other(body):
        return says("I say 5.") if ended else calls(ADD)
    return says("It says 5.") if ended else asks(body)


def asked_in(seen: Performance) -> str:
    return "{'task': 'help'}" if "'task'" in str(seen.requests[0]["tools"]) else "{'input': 'help'}"


@every_way
async def test_calls_of_inner_agent_are_shown_below_tool_and_are_not_replayed(
    name: str, way: str, tmp_path: Path
) -> None:
    def script(body: Body) -> Answer:
        again = sum(message["role"] == "user" for message in body["messages"]) == 2
        return says("As I said.") if again else asks_and_adds(body)

    seen, _ = await perform(asks_another(name, way), scenario(script, turns=("go", "once more")), tmp_path)
    assert seen.lines(in_order=True) == [
        f"call 1 ask_other {asked_in(seen)}",
        *("call 2 in 1 add {'a': 2, 'b': 3}", "result 2 5", "result 1 I say 5."),
        *("say It says 5.", "done stop", "say As I said.", "done stop"),
    ]
    assert len(seen.asked) == 5
    assert seen.asked == seen.received
    assert [event.total_tokens for event in seen.events if isinstance(event, Usage)] == [60, 15]
    assert seen.sent() == [
        *("user go", f"assistant calls ask_other {asked_in(seen)}", "tool I say 5."),
        *("assistant It says 5.", "user once more"),
    ]
    written = {event.tool_name for event in seen.events if isinstance(event, ToolCallArgsDelta)}
    assert written <= {"ask_other"}, "a call whose arguments are shown has a card of its own"
    kept = {row.tool_name: row for row in seen.stored if row.role == "tool"}
    assert kept["add"].parent_call_id == kept["ask_other"].tool_call_id
    assert kept["ask_other"].parent_call_id is None


@every_way
async def test_refused_call_of_inner_agent_is_not_run(name: str, way: str, tmp_path: Path) -> None:
    refusing = scenario(asks_and_adds, reply=False)
    seen, _ = await perform(asks_another(name, way), refusing, tmp_path, confirm_tools=["add"])
    assert seen.lines(in_order=True) == [
        *(f"call 1 ask_other {asked_in(seen)}", "call 2 in 1 add {'a': 2, 'b': 3}"),
        *("status 2 pending waiting for approval", "ask 2 Run add?", "failed 2 denied"),
        *("result 1 I say 5.", "say It says 5.", "done stop"),
    ]
    assert "Not run: the user refused it." in seen.requests[2]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("name", "way"),
    # LangGraph does not run an asynchronous tool, as this one is, in a thread.
    [one for one in EVERY_WAY if "passes_events_on" not in one[1] and one != ("LangGraph", "in_a_thread")],
)
async def test_call_of_inner_agent_that_needs_approval_in_its_own_way_is_asked_about(
    name: str, way: str, tmp_path: Path
) -> None:
    toolbox = Toolbox()

    def script(body: Body) -> Answer:
        ended = body["messages"][-1]["role"] == "tool"
        if openai_agents_stage.offered(body) == ["wipe"]:
            return says("I say so.") if ended else calls(("wipe", '{"disk": "C"}'))
        return says("It is empty.") if ended else asks(body)

    made = MODULES[name].asks_another(MODULES[name].tool_named("wipe", toolbox), way=way)
    seen, _ = await perform(made, scenario(script, reply=True), tmp_path)
    assert toolbox.wiped == ["C"]
    lines = seen.lines(in_order=True)
    assert [line for line in lines if line.startswith("ask ")] == ["ask 2 Run wipe?"]
    assert lines[-4:] == ["result 2 C is empty", "result 1 I say so.", "say It is empty.", "done stop"]


@awaited
async def test_calls_of_inner_agent_count_towards_limit(name: str, way: str, tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        if is_the_other(body):
            asked = len(body["messages"])
            return calls(("add", f'{{"a": {asked}, "b": 1}}'), first=asked)
        return asks(body) if body.get("tools") else says("It is enough.")

    seen, _ = await perform(asks_another(name, way), scenario(script), tmp_path)
    lines = seen.lines(in_order=True)
    # The tool itself is the first of the calls that are allowed.
    assert MAX_TOOL_CALLS == 3
    ends = [line.split()[:2] for line in lines if line.startswith(("result", "failed"))]
    assert ends == [["result", "2"], ["result", "3"], ["failed", "4"], ["result", "1"]]
    assert "failed 4 limit" in lines
    assert lines[-2:] == ["say It is enough.", "done max_turns"]


@pytest.mark.parametrize(
    ("name", "told"),
    [("Agno", ("'Other'", "await agent.arun")), ("LangGraph", ("The graph 'agent'", "await graph.ainvoke"))],
)
async def test_blocking_run_of_inner_agent_is_refused_with_advice(
    name: str, told: tuple[str, str], tmp_path: Path
) -> None:
    script = scenario([calls(("ask_other", '{"task": "help"}')), says("It cannot.")])
    seen, _ = await perform(asks_another(name, "blocks"), script, tmp_path)
    [failure] = [event for event in seen.events if isinstance(event, ToolCallError)]
    assert [words for words in told if words not in failure.error] == []


# --- An answer that a guardrail replaces or refuses leaves no trace: the page has shown it by then -------------------

SECRET = "mail@example.org"
ANSWER = f"Write to {SECRET} today."
LET_ME = "Let me see. "
NOT_ALLOWED = "This is not allowed."


def answers_after_a_call(body: Body) -> Answer:
    """An answer with a secret after a call, and an answer without a secret to the second question."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return says(ANSWER)
    return says("Fine.") if "again" in str(last["content"]) else calls(ADD, before=LET_ME)


def hide(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


def graph_redacts_at_the_end(*, under_its_id: bool) -> Framework:
    from langchain.agents.middleware import after_agent
    from langchain_core.messages import AIMessage, RemoveMessage

    @after_agent
    def guard(state: Any, runtime: Any) -> dict[str, Any]:
        last = state["messages"][-1]
        if under_its_id:
            return {"messages": [AIMessage(hide(last.text), id=last.id)]}
        return {"messages": [RemoveMessage(id=last.id), AIMessage(hide(last.text))]}

    return langgraph_agents.solo(langgraph_agents.add, middleware=[guard])


def node_redacts() -> Framework:
    from langchain.agents.middleware import AgentMiddleware

    class Guard(AgentMiddleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            response = await handler(request)
            for message in response.result:
                if isinstance(message.content, str):
                    message.content = hide(message.content)
            return response

    return langgraph_agents.solo(langgraph_agents.add, middleware=[Guard()])


def pii(strategy: Any) -> Framework:
    from langchain.agents.middleware import PIIMiddleware

    guard = PIIMiddleware("email", strategy=strategy, apply_to_input=False, apply_to_output=True)
    return langgraph_agents.solo(langgraph_agents.add, middleware=[guard])


def sdk_trips_on_output() -> Framework:
    from agents import GuardrailFunctionOutput, output_guardrail

    @output_guardrail
    async def guard(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=SECRET in output)

    return openai_agents_stage.solo(openai_agents_stage.add(), output_guardrails=[guard])


def sdk_trips_on_input_while_the_model_answers() -> Framework:
    from agents import GuardrailFunctionOutput, input_guardrail

    @input_guardrail
    async def guard(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        if "again" in str(given):
            return GuardrailFunctionOutput(None, tripwire_triggered=False)
        await said_it.wait()
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    said_it = asyncio.Event()

    def make(model: Any) -> Any:
        stream = model.stream_response

        async def notice(*request: Any, **more: Any) -> Any:
            async for event in stream(*request, **more):
                yield event
            said_it.set()

        model.stream_response = notice
        return openai_agents_stage.solo(input_guardrails=[guard]).make(model)

    return openai_agents_stage.Made(make)


def agno_check_fails() -> Framework:
    from agno.exceptions import CheckTrigger, OutputCheckError

    def guard(run_output: Any) -> None:
        if SECRET in str(run_output.content):
            raise OutputCheckError(NOT_ALLOWED, check_trigger=CheckTrigger.OUTPUT_NOT_ALLOWED)

    return agno_agents.crew(tools=[agno_agents.add], post_hooks=[guard])


def agno_hook_redacts() -> Framework:
    def guard(run_output: Any) -> None:
        run_output.content = hide(str(run_output.content))

    return agno_agents.solo(agno_agents.add, post_hooks=[guard])


def refuse_as_pydantic_ai(text: str) -> str:
    from pydantic_ai import ModelRetry

    if SECRET in text:
        raise ModelRetry(NOT_ALLOWED)
    return text


def capability_redacts() -> Framework:
    from pydantic_ai.capabilities import AbstractCapability

    class Guard(AbstractCapability[Any]):
        async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
            for part in response.parts:
                if hasattr(part, "content"):
                    part.content = hide(part.content)
            return response

    return pydantic_ai_agents.solo(pydantic_ai_agents.add, capabilities=[Guard()])


Guarded = Callable[[], Framework]
HIDDEN = f"{LET_ME}Write to [hidden] today."
PII_HIDDEN = f"{LET_ME}Write to [REDACTED_EMAIL] today."

GUARDS: dict[str, tuple[Guarded, str | None]] = {
    "Agno: a hook replaces": (agno_hook_redacts, HIDDEN),
    "Agno: a team's check fails": (agno_check_fails, None),
    "pydantic-ai: a validator replaces": (lambda: pydantic_ai_agents.validated(hide), HIDDEN),
    "pydantic-ai: a capability replaces": (capability_redacts, HIDDEN),
    "pydantic-ai: a validator is out of retries": (
        lambda: pydantic_ai_agents.validated(refuse_as_pydantic_ai, retries=0),
        None,
    ),
    "LangGraph: after the model": (lambda: pii("redact"), PII_HIDDEN),
    "LangGraph: after the agent": (partial(graph_redacts_at_the_end, under_its_id=True), HIDDEN),
    "LangGraph: another message instead": (partial(graph_redacts_at_the_end, under_its_id=False), HIDDEN),
    "LangGraph: in the model's node": (node_redacts, HIDDEN),
    "LangGraph: refused after the model": (lambda: pii("block"), None),
    "OpenAI Agents: refused": (sdk_trips_on_output, None),
}


async def seen_of(guarded: Guarded, folder: Path, answers: Any) -> Performance:
    """Two turns with a guarded agent. The guard changes or refuses the first answer."""
    seen, _ = await perform(guarded(), scenario(answers, turns=("go", "again")), folder)
    assert SECRET not in seen.left()
    assert SECRET not in str(seen.stored)
    assert SECRET not in str(seen.requests[-1])
    assert SECRET not in "".join(event.message for event in seen.events if isinstance(event, Error))
    return seen


@pytest.mark.parametrize("name", GUARDS)
async def test_answer_that_guard_replaces_or_refuses_is_taken_back(name: str, tmp_path: Path) -> None:
    guarded, replaced = GUARDS[name]
    seen = await seen_of(guarded, tmp_path, answers_after_a_call)
    assert Performance([seen.turns[0]]).left() == (replaced or LET_ME)
    assert isinstance(seen.turns[0][-1], Error) == (replaced is None)
    if replaced:
        said = replaced.removeprefix(LET_ME)
        assert said in str(seen.stored)
        assert said in str(seen.requests[-1])


async def test_answer_is_taken_back_if_parallel_guard_refuses_question(tmp_path: Path) -> None:
    def answers(body: Body) -> Answer:
        return says("Fine." if "again" in str(body["messages"][-1]["content"]) else ANSWER)

    seen = await seen_of(sdk_trips_on_input_while_the_model_answers, tmp_path, answers)
    assert Performance([seen.turns[0]]).left() == ""
    assert isinstance(seen.turns[0][-1], Error)


@pytest.mark.parametrize(
    "name",
    ["LangGraph: after the model", "LangGraph: in the model's node", "pydantic-ai: a capability replaces"],
)
async def test_replaced_text_before_call_is_sent_before_call_starts(name: str, tmp_path: Path) -> None:
    def answers(body: Body) -> Answer:
        last = body["messages"][-1]
        return says("Fine.") if "again" in str(last["content"]) or last["role"] == "tool" else calls(ADD, before=ANSWER)

    guarded, replaced = GUARDS[name]
    seen = await seen_of(guarded, tmp_path, answers)
    said = (replaced or "").removeprefix(LET_ME)
    assert Performance([seen.turns[0]]).left() == f"{said}Fine."
    assert said in str(seen.requests[1])


# --- Text of a failed request is taken back when the framework asks again --------------------------------------------


def agno_retries(kind: str) -> Framework:
    def make(model: Any) -> AgentLike:
        from agno.models.openai import OpenAIChat

        class Kept(OpenAIChat):
            """A model that keeps its client when Agno copies it, which Agno does with fallbacks."""

            def __deepcopy__(self, memo: dict[int, Any]) -> OpenAIChat:
                return copy(self)

        asked = model()
        options: dict[str, Any] = {}
        match kind:
            case "retries":
                asked.retries = 2
                asked.delay_between_retries = 0
            case "fallbacks":
                options["fallback_models"] = [Kept(id="m", async_client=asked.async_client) for _ in range(2)]
            case "runs":
                options |= {"retries": 2, "delay_between_retries": 0}
        return agno_agents.solo(agno_agents.add, **options).make(lambda: asked)

    return agno_agents.Made(make)


def graph_retries(kind: str) -> Framework:
    def make(model: Any) -> AgentLike:
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.types import RetryPolicy

        asked: Any = model
        if kind == "model":
            asked = model.with_retry(stop_after_attempt=3, wait_exponential_jitter=False)

        async def node(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await asked.ainvoke(state["messages"])]}

        policy = RetryPolicy(initial_interval=0, jitter=False, max_attempts=3, retry_on=Exception)
        graph = StateGraph(MessagesState).add_edge(START, "node")
        graph.add_node("node", node, retry_policy=policy if kind == "node" else None)
        return langgraph_agents.serve(graph.compile(name="agent"))

    return langgraph_agents.Made(make)


def sdk_retries() -> Framework:
    from agents import ModelRetrySettings, ModelSettings

    again = ModelRetrySettings(max_retries=2, policy=lambda _: True, backoff={"initial_delay": 0, "jitter": False})
    return openai_agents_stage.solo(openai_agents_stage.add(), model_settings=ModelSettings(retry=again))


def is_whole(answer: str) -> str:
    from pydantic_ai import ModelRetry

    if "Half" in answer:
        raise ModelRetry("Say all of it.")
    return answer


HALF = chunks(text("Half an answer"), ending="cut")
FIRST_ADDS = [calls(ADD, before=LET_ME)]
RETRIES: dict[str, tuple[Callable[[], Framework], list[Answer]]] = {
    "Agno: the model": (partial(agno_retries, "retries"), [*FIRST_ADDS, HALF, HALF]),
    "Agno: fallbacks": (partial(agno_retries, "fallbacks"), [HALF, HALF]),
    "Agno: the run": (partial(agno_retries, "runs"), [HALF, HALF]),
    "pydantic-ai: a validator": (
        partial(pydantic_ai_agents.validated, is_whole, retries=3),
        [*FIRST_ADDS, says("Half an answer"), says("Half again")],
    ),
    "LangGraph: a node": (partial(graph_retries, "node"), [HALF, HALF]),
    "LangGraph: the model": (partial(graph_retries, "model"), [HALF, HALF]),
    "OpenAI Agents: after a call": (sdk_retries, [*FIRST_ADDS, HALF, HALF]),
}


@pytest.mark.parametrize("name", RETRIES)
async def test_text_of_failed_request_is_taken_back_on_retry_and_text_before_call_is_kept(
    name: str, tmp_path: Path
) -> None:
    made, script = RETRIES[name]
    seen, _ = await perform(made(), scenario([*script, says("A whole answer.")]), tmp_path)
    assert seen.left() == (LET_ME if script[0] is FIRST_ADDS[0] else "") + "A whole answer."
    assert len(seen.requests) == len(script) + 1


# --- Secrets in results of frameworks' own classes, and in exceptions, do not reach the model ------------------------

KEY = "sk-of-the-house-4711"


def fails() -> str:
    """Fails."""
    raise ValueError(f"{KEY} was refused")


def agno_result() -> Any:
    """Gives an object of Agno's."""
    from agno.tools.function import ToolResult

    return ToolResult(content=f"the key is {KEY}")


def pydantic_ai_return() -> Any:
    """Gives an object of pydantic-ai's."""
    from pydantic_ai import ToolReturn

    return ToolReturn({"key": KEY}, content=[f"the key is {KEY}"])


def langgraph_command() -> Framework:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import InjectedToolCallId
    from langgraph.types import Command

    def leak(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Gives an object of LangGraph's."""
        return Command(update={"messages": [ToolMessage(f"the key is {KEY}", tool_call_id=tool_call_id)]})

    return langgraph_agents.solo(leak)


def sdk_text() -> Any:
    """Gives an object of the SDK's."""
    from agents import ToolOutputText

    return ToolOutputText(text=f"the key is {KEY}")


def of_sdk(function: Any) -> Framework:
    return openai_agents_stage.solo(openai_agents_stage.tool_of(function))


LEAKS: dict[str, tuple[Callable[[], Framework], str]] = {
    **{
        f"{name}: {tool.__name__}": (partial(solo, tool), tool.__name__)
        for name, solo, tools in (
            ("Agno", agno_agents.solo, (agno_result, fails)),
            ("pydantic-ai", pydantic_ai_agents.solo, (pydantic_ai_return, fails)),
            ("LangGraph", langgraph_agents.solo, (fails,)),
            ("OpenAI Agents", of_sdk, (sdk_text, fails)),
        )
        for tool in tools
    },
    "LangGraph: a command": (langgraph_command, "leak"),
}


@pytest.mark.parametrize("name", LEAKS)
async def test_secrets_in_results_do_not_reach_model(name: str, tmp_path: Path) -> None:
    made, tool = LEAKS[name]
    seen, _ = await perform(made(), scenario([calls((tool, "{}")), says("Done.")]), tmp_path, secrets=[KEY])
    told = [message for message in seen.requests[-1]["messages"] if message["role"] in ("tool", "user")]
    assert "[secret]" in str(told)
    assert KEY not in str(seen.requests)
    assert KEY not in str(seen.events)


# --- What each adapter serves: an agent, or a function that makes one for each run -----------------------------------


ADAPTERS = {
    "Agno": "callboard.frameworks.agno:from_agno",
    "pydantic-ai": "callboard.frameworks.pydantic_ai:from_pydantic_ai",
    "LangGraph": "callboard.frameworks.langgraph:from_langgraph",
    "OpenAI Agents": "callboard.frameworks.openai_agents:from_openai_agents",
}


def serve(name: str, given: Any, **options: Any) -> Any:
    from agents import RunConfig

    own = {"run_config": RunConfig(tracing_disabled=True)} if name == "OpenAI Agents" else {}
    return resolve_name(ADAPTERS[name])(given, **own, **options)


def agent_of(name: str, model: Any = None, called: str = "agent", instructions: str | None = None) -> Any:
    """An object of the framework, with a model or without."""
    import agents
    import agno.agent
    import pydantic_ai

    match name:
        case "Agno":
            return agno.agent.Agent(name=called, model=model and model(), instructions=instructions, telemetry=False)
        case "pydantic-ai":
            return pydantic_ai.Agent(model or "test", name=called, instructions=instructions)
        case "LangGraph":
            return langgraph_agents.agent_of(model or unasked_model(), system_prompt=instructions).copy(
                {"name": called}
            )
        case _:
            return agents.Agent(called, model=model, instructions=instructions)


def unasked_model() -> Any:
    return resolve_name("langchain_openai:ChatOpenAI")(model="m", base_url="http://127.0.0.1:9/v1", api_key="key")


def made_of(path: str, *given: Any, **fields: Any) -> Callable[[], Any]:
    """A function that makes an object of the class at this path."""
    return lambda: resolve_name(path)(*given, **fields)


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("Agno", lambda: "gpt-5", "this is 'gpt-5'"),
    ("pydantic-ai", lambda: None, "this is None"),
    ("LangGraph", list, "builtins.list"),
    ("OpenAI Agents", lambda: int, "this is int"),
    ("Agno", lambda: lambda: None, "takes one argument, the RunContext"),
    ("Agno", made_of("agno.workflow:Workflow", name="flow"), "agno.workflow"),
    ("pydantic-ai", lambda: agent_of("OpenAI Agents"), "agents.agent.Agent"),
    ("LangGraph", made_of("langgraph.graph:StateGraph", dict), r"Compile it: graph.compile\(\)"),
    ("LangGraph", made_of("langgraph.pregel.remote:RemoteGraph", "a", url="http://a.test"), "runs on another server"),
    ("LangGraph", made_of("langchain_core.runnables:RunnableLambda", str), "create_agent"),
]


@pytest.mark.parametrize(("name", "given", "told"), REFUSED)
def test_object_that_is_no_agent_is_refused_with_advice(name: str, given: Callable[[], Any], told: str) -> None:
    with pytest.raises(AgentError, match=f"or a function that makes one for each run.*{told}"):
        serve(name, given(), agent_id="agent")


@pytest.mark.parametrize("name", MODULES)
def test_id_is_made_of_name_and_required_if_no_id_can_be_made_of_it(name: str) -> None:
    made = serve(name, agent_of(name, called="Weather Expert!"))
    assert (made.agent_id, made.name) == ("Weather-Expert", "Weather Expert!")
    with pytest.raises(AgentError, match="agent_id"):
        serve(name, agent_of(name, called="天気"))


@pytest.mark.parametrize("name", MODULES)
async def test_function_makes_agent_from_context_of_run(name: str, tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        async def build(context: RunContext) -> Any:
            assert context.user is not None
            return agent_of(name, model, instructions=f"You serve {context.user.id}.")

        served: AgentLike = serve(name, build, agent_id="agent")
        return served

    seen, _ = await perform(MODULES[name].Made(make), scenario([says("At your service.")]), tmp_path)
    assert "You serve u1." in seen.requests[0]["messages"][0]["content"]
    other = MODULES[name].Made(lambda _: serve(name, lambda context: "gpt-5", agent_id="agent"))
    seen, _ = await perform(other, scenario([]), tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert "The function of the agent 'agent' must return" in error.message
    assert "str" in error.message


# --- Code of an agent changes the arguments of a call, or what its model is told -------------------------------------


def agno_changes(toolbox: Toolbox) -> Framework:
    async def change(function_call: Any, arguments: dict[str, Any]) -> Any:
        arguments["disk"] = "D"
        return await function_call(**arguments)

    return agno_agents.solo(agno_agents.tool_named("wipe", toolbox), tool_hooks=[change])


def agno_changes_in_thread(toolbox: Toolbox) -> Framework:
    from agno.tools import tool

    def wipe(disk: str) -> str:
        """Wipes a disk."""
        toolbox.wiped.append(disk)
        return f"{disk} is empty"

    def change(fc: Any) -> None:
        fc.arguments["disk"] = "D"

    return agno_agents.solo(tool(requires_confirmation=True, pre_hook=change)(wipe))


def pydantic_ai_changes(toolbox: Toolbox) -> Framework:
    from pydantic_ai.capabilities import AbstractCapability

    class Change(AbstractCapability[Any]):
        async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
            return {**args, "disk": "D"}

    return pydantic_ai_agents.solo(pydantic_ai_agents.tool_named("wipe", toolbox), capabilities=[Change()])


def graph_changes(toolbox: Toolbox) -> Framework:
    from langchain.agents.middleware import wrap_tool_call

    @wrap_tool_call
    async def change(request: Any, handler: Any) -> Any:
        args = {**request.tool_call["args"], "disk": "D"}
        return await handler(request.override(tool_call={**request.tool_call, "args": args}))

    return langgraph_agents.solo(toolbox.plain("wipe"), middleware=[change, langgraph_agents.approval()])


def graph_changes_after_the_question(toolbox: Toolbox) -> Framework:
    from langchain.agents.middleware import after_model

    @after_model
    def change(state: Any, runtime: Any) -> Any:
        [last, *_] = [message for message in reversed(state["messages"]) if message.type == "ai"]
        for call in last.tool_calls:
            call["args"] = {"disk": "D"}
        return {"messages": [last]}

    # The last one is the first after the model.
    return langgraph_agents.solo(toolbox.plain("wipe"), middleware=[change, langgraph_agents.approval()])


@pytest.mark.parametrize("reply", [True, False])
@pytest.mark.parametrize(
    "changes",
    [agno_changes, agno_changes_in_thread, pydantic_ai_changes, graph_changes, graph_changes_after_the_question],
)
async def test_user_is_asked_again_about_arguments_that_change_after_consent(
    changes: Callable[[Toolbox], Framework], reply: bool, tmp_path: Path
) -> None:
    toolbox = Toolbox()
    asked = scenario([calls(("wipe", '{"disk": "C"}')), says("Done.")], reply=reply)
    seen, _ = await perform(changes(toolbox), asked, tmp_path)
    first = ["call 1 wipe {'disk': 'C'}", "status 1 pending waiting for approval", "ask 1 Run wipe?"]
    again = [
        *("status 1 processing approved", "status 1 changed arguments changed by the agent"),
        *("status 1 pending waiting for approval", "ask 1 Run wipe?"),
        *("status 1 processing approved", "result 1 D is empty", "say Done.", "done stop"),
    ]
    refused = ["failed 1 denied", "say Done.", "done stop"]
    assert seen.lines(in_order=True) == [*first, *(again if reply else refused)]
    assert toolbox.wiped == (["D"] if reply else [])
    [stored] = [row for row in seen.stored if row.role == "tool"]
    assert json.loads(stored.arguments) == {"disk": "D" if reply else "C"}


@pytest.mark.parametrize(("replies", "wiped"), [([True] * 4, ["D", "E", "C"]), ([True, False], [])])
async def test_user_is_asked_about_each_change_of_arguments_until_they_refuse(
    replies: list[bool], wiped: list[str], tmp_path: Path
) -> None:
    from langchain.agents.middleware import wrap_tool_call

    @wrap_tool_call
    async def repeat(request: Any, handler: Any) -> Any:
        for disk in "DE":
            await handler(request.override(tool_call={**request.tool_call, "args": {"disk": disk}}))
        return await handler(request)

    toolbox = Toolbox()
    made = langgraph_agents.solo(toolbox.plain("wipe"), middleware=[repeat, langgraph_agents.approval()])
    script = [calls(("wipe", '{"disk": "C"}')), says("Done.")]
    answers = iter(replies)
    seen, _ = await perform(made, scenario(script, reply=lambda _: next(answers)), tmp_path)
    assert toolbox.wiped == wiped
    asked = [event.request_id for event in seen.events if isinstance(event, InputRequest)]
    assert len(asked) == len(set(asked)) == len(replies)
    [stored] = [row for row in seen.stored if row.role == "tool"]
    assert json.loads(stored.arguments) == {"disk": "C" if wiped else "D"}


def agno_masks() -> Framework:
    from agno.guardrails import PIIDetectionGuardrail

    return agno_agents.solo(contact, pre_hooks=[PIIDetectionGuardrail(mask_pii=True)])


def graph_masks() -> Framework:
    from langchain.agents.middleware import PIIMiddleware

    guard = PIIMiddleware("email", apply_to_input=True, apply_to_tool_results=True)
    return langgraph_agents.solo(contact, middleware=[guard])


async def contact() -> str:
    """Says where to write to."""
    return f"Write to {SECRET}."


PICTURE: Body = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize("files", [[], [PICTURE]], ids=["text", "picture"])
@pytest.mark.parametrize(
    ("masks", "told"),
    [
        (agno_masks, [f"user I am {'*' * len(SECRET)}.", "tool Write to mail@example.org."]),
        (graph_masks, ["user I am [REDACTED_EMAIL].", "tool Write to [REDACTED_EMAIL]."]),
    ],
)
async def test_later_turns_are_told_what_the_model_was_shown(
    masks: Callable[[], Framework], told: list[str], files: list[Body], tmp_path: Path
) -> None:
    script = [calls(("contact", "{}")), says("I see."), says("Yes."), says("Still yes.")]
    question = [{"type": "text", "text": f"I am {SECRET}."}, *files] if files else f"I am {SECRET}."
    asked = scenario(script, turns=(question, "really?", "and now?"))
    seen, _ = await perform(masks(), asked, tmp_path)
    assert seen.sent() == [
        *(told[0] + "".join(file["image_url"]["url"] for file in files), "assistant calls contact {}", told[1]),
        *("assistant I see.", "user really?", "assistant Yes.", "user and now?"),
    ]
    store = await Store.open(f"sqlite:///{tmp_path / 'callboard.db'}")
    replayed = await store.chats(USER.id).replay(CHAT_ID)
    await store.close()
    assert [f"{message['role']} {message['content']}" for message in (replayed[0], replayed[2])] == told
    assert f"result 1 Write to {SECRET}." in seen.lines(in_order=True)


# --- The context of a run reaches its tools ---------------------------------------------------------------------------


async def user_of(context: RunContext) -> str:
    return context.user.id if context.user else "nobody"


@dataclass(frozen=True)
class Whose:
    """A context of LangGraph's nodes and tools."""

    user_id: str


def agno_whose(model: Any) -> AgentLike:
    from agno.run import RunContext

    def whose(run_context: RunContext) -> str:
        """Says whose run it is."""
        given = run_context.dependencies or {}
        return f"{given['user_id']} {given['chat_id']} {given['shop']}"

    return agno_agents.solo(whose, dependencies={"shop": "north"}).make(model)


def pydantic_ai_whose(model: Any) -> AgentLike:
    from pydantic_ai import Agent, RunContext

    def whose(ctx: RunContext[str]) -> str:
        """Says whose run it is."""
        return ctx.deps

    return cast(AgentLike, serve("pydantic-ai", Agent(model, name="agent", deps_type=str, tools=[whose]), deps=user_of))


def graph_whose(model: Any) -> AgentLike:
    from langgraph.prebuilt import ToolRuntime

    def whose(runtime: ToolRuntime[Whose]) -> str:
        """Says whose run it is."""
        return runtime.context.user_id

    async def context(of: RunContext) -> Whose:
        return Whose(await user_of(of))

    graph = langgraph_agents.agent_of(model, whose, context_schema=Whose)
    return langgraph_agents.serve(graph, context=context)


def sdk_whose(model: Any) -> AgentLike:
    from agents import Agent, RunContextWrapper

    async def whose(context: RunContextWrapper[str]) -> str:
        """Says whose run it is."""
        return context.context

    agent = Agent("agent", model=model, tools=[openai_agents_stage.tool_of(whose)])
    return openai_agents_stage.serve(agent, context=user_of)


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        ("Agno", agno_whose, "u1 chat_1 north"),
        ("pydantic-ai", pydantic_ai_whose, "u1"),
        ("LangGraph", graph_whose, "u1"),
        ("OpenAI Agents", sdk_whose, "u1"),
    ],
)
async def test_tools_get_context_of_run(name: str, make: Any, told: str, tmp_path: Path) -> None:
    seen, _ = await perform(MODULES[name].Made(make), scenario([calls(("whose", "{}")), says("Yours.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == [f"result 1 {told}", "say Yours.", "done stop"]


# --- Which agents continue a run of another server -------------------------------------------------------------------


def agno_team_with(**fields: Any) -> Any:
    from agno.team import Team

    return Team(id="agent", members=[agent_of("Agno", called="member")], telemetry=False, **fields)


def graph_with_middleware() -> Any:
    from langchain.agents.middleware import TodoListMiddleware, before_agent

    @before_agent
    def note(state: Any, runtime: Any) -> None:
        """Do nothing."""

    return langgraph_agents.agent_of(unasked_model(), langgraph_agents.add, middleware=[TodoListMiddleware(), note])


def graph_with_a_planner() -> Any:
    """A graph that does not return to its start."""

    def speak(state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [unasked_model().invoke(state["messages"])]}

    return langgraph_agents.chain(("plan", speak), ("act", agent_of("LangGraph")))


ON_OWNER_LOSS: dict[str, tuple[str, Callable[[], Any], OnOwnerLoss]] = {
    "a function that makes one": ("Agno", lambda: lambda _: agent_of("Agno"), "continue"),
    "a team": ("Agno", agno_team_with, "continue"),
    "a team with a list of tasks": ("Agno", lambda: agno_team_with(mode="tasks"), "end"),
    "a team whose members read the user": ("Agno", lambda: agno_team_with(determine_input_for_members=False), "end"),
    "an agent of pydantic-ai": ("pydantic-ai", lambda: agent_of("pydantic-ai"), "continue"),
    "an agent of the SDK": ("OpenAI Agents", lambda: agent_of("OpenAI Agents"), "continue"),
    "an agent of LangChain": ("LangGraph", graph_with_middleware, "continue"),
    "an agent without tools": ("LangGraph", lambda: agent_of("LangGraph"), "continue"),
    "a loop": ("LangGraph", lambda: langgraph_agents.loop(unasked_model(), [langgraph_agents.add]), "continue"),
    "a graph with a planner": ("LangGraph", graph_with_a_planner, "end"),
    "a function that makes a graph": ("LangGraph", lambda: lambda _: agent_of("LangGraph"), "end"),
}


def read_on_owner_loss(agent: AgentLike) -> object:
    return getattr(agent, "on_owner_loss", None)


@pytest.mark.parametrize("what", ON_OWNER_LOSS)
def test_default_of_on_owner_loss_and_override_by_author(what: str) -> None:
    name, make, usual = ON_OWNER_LOSS[what]
    assert read_on_owner_loss(serve(name, make(), agent_id="a")) == usual
    for wanted in ("continue", "end"):
        assert read_on_owner_loss(serve(name, make(), agent_id="a", on_owner_loss=wanted)) == wanted


def agno_with_history(model: Any) -> AgentLike:
    from agno.agent import Agent
    from agno.db.in_memory import InMemoryDb

    db = InMemoryDb()  # type: ignore[no-untyped-call] # Agno's has no types
    made = Agent(
        id="agent", model=model(), tools=[agno_agents.add], db=db, add_history_to_context=True, telemetry=False
    )
    return cast(AgentLike, serve("Agno", made))


def graph_with_history(model: Any, history: str = "own") -> AgentLike:
    return langgraph_agents.serve(langgraph_agents.agent_of(model, langgraph_agents.add), history=history)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("Agno", agno_with_history),
        ("LangGraph", graph_with_history),
        ("LangGraph", partial(graph_with_history, history="callboard")),
    ],
)
async def test_model_gets_chat_once_with_either_history(name: str, make: Any, tmp_path: Path) -> None:
    made = MODULES[name].Made(make)
    turns = scenario([calls(ADD), says("It is 5."), says("It was 5.")], turns=("go", "what was it?"))
    seen, _ = await perform(made, turns, tmp_path)
    assert seen.sent() == [
        *("user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5", "assistant It is 5."),
        "user what was it?",
    ]


def test_own_history_with_on_owner_loss_continue_is_refused() -> None:
    assert read_on_owner_loss(serve("LangGraph", agent_of("LangGraph"), history="own")) == "end"
    with pytest.raises(AgentError, match="its own history lacks the calls that ended there"):
        serve("LangGraph", agent_of("LangGraph"), on_owner_loss="continue", history="own")


def test_unknown_on_owner_loss_is_refused() -> None:
    class Careless(ScriptedAgent):
        on_owner_loss = "maybe"

    careless: Any = Careless(lambda _: iter(()))  # type: ignore[arg-type, return-value] # it is not run
    unknown: Any = "maybe"
    makes: list[Callable[[], object]] = [
        lambda: serve("Agno", agent_of("Agno"), on_owner_loss=unknown),
        lambda: register(careless),
        lambda: Registry([careless]),
    ]
    for make in makes:
        with pytest.raises(AgentError, match="on_owner_loss='maybe'"):
            make()
