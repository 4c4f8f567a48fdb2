"""Which agents there are, and how the user's own files join them."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from callboard.agents import Agent, RunContext
from callboard.agents.loading import LoadedAgents, load_all_agents
from callboard.agents.registry import Registry
from callboard.calls import Services
from callboard.errors import AgentError, UnknownAgent
from callboard.models import ScriptedModel
from callboard.settings import Settings
from callboard.storage import Store
from callboard_protocol import Event
from tests.serving import ScriptedAgent

BUILT_IN = ["demo", "assistant", "naked"]

GOOD = """
from callboard import Agent, Skill, register, tool
from neighbour_{number} import GREETING

@tool
def greet(name: str) -> str:
    "Greets somebody."
    return GREETING + name

register(Agent("greeter_{number}", "Greets.", [Skill("greeting", "Greets.", tools=[greet])]))
register(Agent("other_{number}"))
"""


def write_good(folder: Path, number: int = 1) -> str:
    (folder / f"neighbour_{number}.py").write_text("GREETING = 'Hello '")
    path = folder / f"good_{number}.py"
    path.write_text(GOOD.format(number=number))
    return str(path)


def load_agents(sources: Sequence[str] = (), **variables: str) -> LoadedAgents:
    return load_all_agents(Settings(agents=tuple(sources)), variables)


def ids(registry: Registry) -> list[str]:
    return [agent.agent_id for agent in registry]


def test_an_unknown_agent_is_refused_naming_those_there_are() -> None:
    registry = Registry([Agent("one"), Agent("two")])
    assert registry.get("two").agent_id == "two"
    assert ids(registry) == ["one", "two"]
    with pytest.raises(UnknownAgent, match=r"no agent 'three'. The agents are: one, two"):
        registry.get("three")
    with pytest.raises(AgentError, match="two agents with the id 'one'"):
        registry.add(Agent("one"))


async def test_lifespan_of_a_hand_written_agent_is_opened_with_the_application() -> None:
    entered: list[str] = []

    class Connected(ScriptedAgent):
        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            entered.append("open")
            yield
            entered.append("closed")

    async def silent(_: RunContext) -> AsyncIterator[Event]:
        return
        yield

    store = await Store.open("sqlite://")
    async with Registry([Connected(silent)]).open(Services(store, ScriptedModel())):
        assert entered == ["open"]
    assert entered == ["open", "closed"]
    await store.close()


def test_every_server_has_the_agents_that_need_nothing_and_says_what_the_others_need() -> None:
    loaded = load_agents()
    assert ids(loaded.registry) == BUILT_IN
    assert loaded.registry.unavailable == {
        "media": "needs CALLBOARD_SEERR_URL, CALLBOARD_SEERR_API_KEY",
        "home": "needs CALLBOARD_HOME_ASSISTANT_URL, CALLBOARD_HOME_ASSISTANT_TOKEN",
    }


def test_a_service_that_is_set_brings_its_agent() -> None:
    loaded = load_agents(CALLBOARD_SEERR_URL="http://seerr.local", CALLBOARD_SEERR_API_KEY="k")
    assert ids(loaded.registry) == [*BUILT_IN, "media"]
    assert list(loaded.registry.unavailable) == ["home"]


@pytest.mark.parametrize("is_set", [True, False])
def test_the_assistant_is_of_use_alone_and_knows_the_house_where_a_home_assistant_is_set(is_set: bool) -> None:
    settings = {"CALLBOARD_HOME_ASSISTANT_URL": "http://home.local", "CALLBOARD_HOME_ASSISTANT_TOKEN": "t"}
    assistant = load_agents(**(settings if is_set else {})).registry.get("assistant")
    assert isinstance(assistant, Agent)
    tools = {"search", "web_fetch", "memory", "history", "profile", "self", "model", "time"}
    assert {tool.name for tool in assistant.tools} == tools | ({"home"} if is_set else set())
    assert ("The tool home knows the user's house." in assistant.build_system_prompt()) is is_set


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for agents; what loading them adds to the import path is taken back."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_file_and_a_module_join_in_their_order(folder: Path) -> None:
    first = write_good(folder, 1)
    write_good(folder, 2)
    loaded = load_agents([first, "good_2"])
    assert loaded.problems == []
    assert ids(loaded.registry)[len(BUILT_IN) :] == ["greeter_1", "other_1", "greeter_2", "other_2"]


def test_folder_loads_each_file_and_a_broken_file_affects_no_other(folder: Path) -> None:
    write_good(folder, 4)
    (folder / "neighbour_4.py").rename(folder / "_neighbour_4.py")
    (folder / "good_4.py").write_text(GOOD.format(number=4).replace("neighbour_", "_neighbour_"))
    (folder / "broken.py").write_text("x = 1 /")
    loaded = load_agents([str(folder)])
    assert ids(loaded.registry)[len(BUILT_IN) :] == ["greeter_4", "other_4"]
    assert [loaded.sources[name] for name in ("demo", "greeter_4")] == ["built in", str(folder / "good_4.py")]
    assert "broken.py, line 1: SyntaxError" in str(loaded.problems[0])


def test_an_installed_package_brings_agents_by_an_entry_point(folder: Path) -> None:
    (folder / "packaged_agents.py").write_text("from callboard import Agent\nAGENT = Agent('packaged')\n")
    info = folder / "packaged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[callboard.agents]\nmine = packaged_agents:AGENT\n")
    sys.path.append(str(folder))
    loaded = load_agents()
    assert ids(loaded.registry) == [*BUILT_IN, "packaged"]
    assert loaded.sources["packaged"] == "mine (packaged_agents:AGENT)"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def f():\n    return 1 / 0\nf()\n", r"broken\.py, line 2: ZeroDivisionError: division by zero"),
        ("\ndef f(:\n", r"broken\.py, line 2: SyntaxError: invalid syntax"),
        (
            "raise ValueError('first.\\n\\tsecond.')",
            r"line 1: ValueError: first\. second\. Correct the mistake and start again",
        ),
        (
            "raise ValueError('word ' * 999)",
            r"broken\.py, line 1: ValueError: word [word ]{,150}…\. Correct the mistake",
        ),
        ("raise SystemExit(2)", r"broken\.py, line 1: SystemExit: 2"),
        ("from callboard import Agent, register\nregister(Agent('two words'))", r"broken\.py, line 2: AgentError"),
        ("from callboard import register\nregister('a string')", "This str is no agent"),
        ("x = 1", "registers no agent"),
        ("from callboard import Agent, register\nregister(Agent('demo'))", "two agents with the id 'demo'"),
        ("from callboard import Agent, register\nregister(Agent('half'))\nraise ValueError", "ValueError"),
    ],
)
def test_broken_file_is_reported_with_its_place_and_others_are_loaded(folder: Path, source: str, told: str) -> None:
    broken = folder / "broken.py"
    broken.write_text(source)
    loaded = load_agents([str(broken), write_good(folder, 3)])
    [problem] = loaded.problems
    with pytest.raises(AgentError, match=told):
        raise problem
    assert ids(loaded.registry) == [*BUILT_IN, "greeter_3", "other_3"]


def test_the_line_is_in_the_users_file_also_when_it_has_the_name_of_one_of_ours(folder: Path) -> None:
    file = folder / "agent.py"  # as `callboard.agents.agent`, which raises
    file.write_text("from callboard import Agent, register\n\nregister(Agent('two words'))\n")
    [problem] = load_agents([str(file)]).problems
    assert f"CALLBOARD_AGENTS: {file}, line 3: AgentError: " in str(problem)


def test_error_in_a_module_is_reported_with_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "company_agents"
    package.mkdir()
    (package / "__init__.py").write_text("from company_agents import news\n")
    (package / "news.py").write_text("x = 1\ny = foo\n")
    monkeypatch.syspath_prepend(folder)
    [problem] = load_agents(["company_agents"]).problems
    assert f"CALLBOARD_AGENTS: {package / 'news.py'}, line 2: NameError: name 'foo' is not defined." in str(problem)


@pytest.mark.parametrize("source", ["/nowhere/at_all.py", "no.such.module"])
def test_missing_source_is_reported(source: str) -> None:
    [problem] = load_agents([source]).problems
    assert f"CALLBOARD_AGENTS: {source} cannot be loaded: " in str(problem)
    assert "Correct the mistake and start again" in str(problem)
