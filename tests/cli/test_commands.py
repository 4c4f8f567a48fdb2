"""The command line, as a process of its own."""

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import callboard
from callboard._history import Turn
from callboard.storage import Store
from tests.processes import COMMAND, environment, run, serving
from tests.storage.turns import StoredSteps


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"HOST": "0.0.0.0"}, "set CALLBOARD_API_KEY"),
        ({"PORT": "many"}, "CALLBOARD_PORT"),
        ({"DATABASE_URL": "nonsense", "PORT": "0"}, "CALLBOARD_DATABASE_URL"),
        ({}, "cannot listen on 127.0.0.1:"),
    ],
)
def test_what_keeps_the_server_from_starting_is_one_clear_line(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run(tmp_path, "serve", **{"PORT": str(taken.getsockname()[1]), **settings})
    assert result.returncode == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_stop_ends_the_server_and_the_streams_of_runs_that_are_not_stored(tmp_path: Path) -> None:
    with serving(tmp_path, API_KEY="k", DRAIN_SECONDS="0") as (url, process):
        body = {"agent": "demo", "messages": [{"role": "user", "content": "slow"}]}
        with httpx.stream("POST", f"{url}/v1/runs", json=body, headers={"Authorization": "Bearer k"}) as response:
            text = ""
            for chunk in response.iter_text():
                text += chunk
                if "tool_call_start" in text and process.poll() is None:
                    process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
        events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
        assert [event["type"] for event in events[-2:]] == ["tool_call_error", "error"]
        assert events[-1]["code"] == "interrupted"


@pytest.fixture
def _ctrl_c_is_heard() -> Iterator[None]:
    """A shell starts background processes with SIGINT ignored, and their children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_is_heard")
def test_ctrl_c_ends_the_server_without_a_traceback(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, process):
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


SEPARATED = "one\u2028two\u2029three\u0085four ✓"


async def keep_separated(folder: Path) -> None:
    store = await Store.open(f"sqlite:///{folder / 'callboard.db'}")
    journal = StoredSteps(store, Turn("c", "run", None, "ann", SEPARATED))
    await journal.begin()
    await journal.finish("Done.", is_answered=True)
    await store.close()


def test_output_for_programs_has_no_line_separators_inside_a_line(tmp_path: Path) -> None:
    asyncio.run(keep_separated(tmp_path))
    written = subprocess.run(
        [*COMMAND, "export", "--chat", "c"],
        env=environment(tmp_path) | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    lines = [json.loads(line) for line in written.stdout.decode().splitlines()]
    assert lines[0]["content"] == SEPARATED
    missing = run(tmp_path, "export", "--chat", "none")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "there is no chat 'none'" in missing.stderr
    with serving(tmp_path) as (url, _):
        kept = httpx.get(f"{url}/v1/user-data", params={"user_id": "ann"}).text.splitlines()
        assert SEPARATED in [json.loads(line).get("content") for line in kept]


def _agent_ids(url: str) -> list[str]:
    return [agent["id"] for agent in httpx.get(f"{url}/v1/models").json()["data"]]


def test_log_lines_of_a_tool_have_its_run_and_call(tmp_path: Path) -> None:
    agents = tmp_path / "logging_agent.py"
    agents.write_text(LOGGING_AGENT)
    with serving(tmp_path, AGENTS=str(agents)) as (url, process):
        body = {"agent": "logs", "run_id": "r1", "chat_id": "c", "messages": [{"role": "user", "content": "go"}]}
        httpx.post(f"{url}/v1/runs", json=body, timeout=None)
        process.terminate()
        assert process.stderr is not None
        entries = [json.loads(line) for line in process.stderr.read().splitlines() if line.startswith("{")]
    [said] = [entry for entry in entries if entry["event"] == "looking"]
    assert {"run_id": "r1", "agent": "logs", "chat_id": "c", "tool": "look"}.items() <= said.items()
    assert said["tool_call_id"]


LOGGING_AGENT = """
import structlog
from callboard import Agent, Skill, register, tool
from callboard.models import ScriptedModel, TextDelta, ToolCallDelta

@tool
def look() -> str:
    "Looks."
    structlog.get_logger().info("looking")
    return "seen"

def script(request):
    if request.messages[-1]["role"] == "tool":
        return [TextDelta("done")]
    return [ToolCallDelta(0, "call", "look", "{}")]

register(Agent("logs", skills=[Skill("s", "d", tools=[look])], model=ScriptedModel(script)))
"""


def test_every_public_name_can_be_imported() -> None:
    for name in callboard.__all__:
        assert getattr(callboard, name) is not None
    with pytest.raises(ImportError):
        exec("from callboard import nothing_of_that_name")


FILES = {
    "good": 'from callboard import Agent, register\nregister(Agent("mine", "My own."))\n',
    "broken": "import nothing_of_that_name\n",
    "lacking": """
from callboard import Agent, Skill, register

lines = ("web_fetch: pip install 'callboard[web]'",)
register(Agent("reader", "Reads.", [Skill("web", "Reads pages.", "You can read.", missing=lines)]))
""",
    "unset": """
from callboard import Agent, register
from callboard.skills import HomeAssistant

register(Agent("butler", skills=[HomeAssistant.from_settings()]))
""",
}


def test_what_an_agent_lacks_is_listed_and_logged_and_keeps_no_other_agent_from_serving(tmp_path: Path) -> None:
    for name, source in FILES.items():
        (tmp_path / f"{name}.py").write_text(source)
    settings = {"AGENTS": ",".join(str(tmp_path / f"{name}.py") for name in FILES)}
    mistake = (
        f"CALLBOARD_AGENTS: {tmp_path / 'broken.py'}, line 1: ModuleNotFoundError: "
        "No module named 'nothing_of_that_name'. "
        "Correct the mistake and start again; until then the agents of this source are left out."
    )
    listed = run(tmp_path, "agents", **settings)
    assert listed.returncode == 1
    assert "demo: Shows what tool calls look like" in listed.stdout
    assert "tools: get_weather, generate_image" in listed.stdout
    assert "home: left out, needs CALLBOARD_HOME_ASSISTANT_URL" in listed.stdout
    reader = f"reader: Reads. ({tmp_path / 'lacking.py'})\n    lacks web_fetch: pip install 'callboard[web]'\n"
    assert reader in listed.stdout
    assert mistake in listed.stderr
    assert "needs CALLBOARD_HOME_ASSISTANT_URL, CALLBOARD_HOME_ASSISTANT_TOKEN" in listed.stderr
    assert "Traceback" not in listed.stderr
    assert mistake in run(tmp_path, "doctor", **settings).stdout
    assert run(tmp_path, "agents").returncode == 0
    with serving(tmp_path, **settings) as (url, process):
        assert {"demo", "mine", "reader"} <= set(_agent_ids(url))
    left_out = [event for event in process.events if event["event"] == "agent_left_out" and event["level"] == "error"]
    assert mistake in [event["reason"] for event in left_out]
    [lacks] = [event for event in process.events if event["event"] == "agent_lacks"]
    assert (lacks["agent"], lacks["lacks"]) == ("reader", ["web_fetch: pip install 'callboard[web]'"])
