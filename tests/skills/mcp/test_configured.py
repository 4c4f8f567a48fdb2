"""The servers of `CALLBOARD_MCP_SERVERS`: the assistant has their tools, and `callboard agents` lists them."""

import json
import sys
from pathlib import Path

import pytest

from callboard.agents import load_all_agents
from callboard.errors import SettingsError
from callboard.settings import Settings
from tests.fakes.openai_server import OpenAIServer, chunks, finish, text
from tests.processes import run
from tests.serving import request, serving
from tests.skills.mcp.conftest import Log

OURS = str(Path(__file__).with_name("our_server.py"))


def configured(folder: Path, **servers: dict[str, object]) -> Path:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


async def test_the_assistant_has_the_tools_of_the_servers(tmp_path: Path) -> None:
    file = configured(
        tmp_path,
        ours={"command": sys.executable, "args": [OURS]},
        broken={"command": "no-such-command-anywhere"},
        wrong={"comand": "x"},
    )
    assistant = load_all_agents(Settings(), {"CALLBOARD_MCP_SERVERS": str(file)}).registry.get("assistant")
    async with OpenAIServer([chunks(text("Hello."), finish("stop"))]) as model:
        async with serving(tmp_path, assistant, model_base_url=model.base_url, model="m") as service:
            await service.events(request(agent="assistant"))
            page = (await service.client.get("/inspect/agent?id=assistant")).text
    offered = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
    assert "web_fetch" in offered
    assert [name for name in offered if name.startswith("ours_")]
    assert "mcp.json: mcpServers.wrong: The MCP server &#39;wrong&#39; needs either a command to run or a url" in page


async def test_bad_entry_is_logged_and_does_not_stop_startup(tmp_path: Path, log: Log) -> None:
    file = configured(tmp_path, wrong={"comand": "x"}, unsure={"command": "x", "disabled": "maybe"})
    assistant = load_all_agents(Settings(), {"CALLBOARD_MCP_SERVERS": str(file)}).registry.get("assistant")
    async with serving(tmp_path, assistant):
        pass
    wrong, unsure = log.of("mcp_server_left_out")
    assert (wrong["level"], unsure["level"]) == ("warning", "warning")
    assert wrong["reason"].startswith(f"{file}: mcpServers.wrong: The MCP server 'wrong' needs either a command")
    assert unsure["reason"].startswith(f"{file}: mcpServers.unsure.disabled: Input should be a valid boolean")


async def test_unreadable_file_stops_startup_with_place(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": ')
    assistant = load_all_agents(Settings(), {"CALLBOARD_MCP_SERVERS": str(file)}).registry.get("assistant")
    with pytest.raises(SettingsError, match=r"mcp\.json, line 1, column 16: not JSON"):
        async with serving(tmp_path, assistant):
            pass


def test_agents_command_shows_state_of_each_server(tmp_path: Path) -> None:
    file = configured(
        tmp_path,
        ours={"command": sys.executable, "args": [OURS]},
        broken={"command": "no-such-command-anywhere"},
        wrong={"comand": "x"},
    )
    listed = run(tmp_path, "agents", MCP_SERVERS=str(file))
    assert "MCP server ours: " in listed.stdout
    assert " tools\n" in listed.stdout
    assert "no-such-command-anywhere" in listed.stdout
    assert "mcp.json: mcpServers.wrong: The MCP server 'wrong' needs either a command to run or a url" in listed.stderr
