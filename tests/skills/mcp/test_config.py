"""The file of MCP servers that other clients have too."""

import json
from pathlib import Path
from typing import Any

import pytest

from callboard.errors import AgentError, SettingsError
from callboard.skills.mcp.declaration import OAuth
from callboard.skills.mcp.server_file import read_server_file
from callboard.skills.mcp.skills import McpServer, McpServers


def written(folder: Path, **servers: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_entries_of_other_clients_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TOKEN", "very-secret")
    path = written(
        tmp_path,
        files={"command": "npx", "args": ["-y", "server", "${NOWHERE:-/data}"], "autoApprove": ["read"]},
        forge={"type": "http", "url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer ${FORGE_TOKEN}"}},
        old={"command": "x", "disabled": True},
        careful={"command": "x", "confirm": "unless_read_only", "timeoutSeconds": 5, "cwd": "~/x"},
    )
    files, forge, careful = read_server_file(path).servers
    assert (files.name, files.command, files.args) == ("files", "npx", ("-y", "server", "/data"))
    assert forge.url == "https://mcp.example/mcp"
    assert forge.headers == {"Authorization": "Bearer very-secret"}
    assert forge.hide("Bearer very-secret, very-secret") == "[secret], [secret]"
    assert (careful.confirm, careful.timeout_seconds, careful.cwd) == ("unless_read_only", 5, Path.home() / "x")
    assert [skill.name for skill in McpServers(path).servers()] == ["files", "forge", "careful"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "mcpServers.bad: The MCP server 'bad' needs either a command to run or a url"),
        ({"command": "x", "args": "-y"}, "mcpServers.bad.args: Input should be a valid tuple"),
        ({"command": "x", "env": {"A": "${NOT_SET_ANYWHERE}"}}, "mcpServers.bad: the variable NOT_SET_ANYWHERE"),
        ({"url": "http://a", "type": "ws"}, "mcpServers.bad: its type is unknown; use stdio or http"),
        ({"url": "http://a", "type": "SSE"}, "mcpServers.bad: its transport, sse, is not supported"),
        ({"command": ["x", "-y"]}, "mcpServers.bad.command: Input should be a valid string"),
        (
            {"url": "http://a", "headers": {"A": "${input:key}"}},
            "mcpServers.bad: only VS Code knows ${input:key}",
        ),
        ({"command": "x", "envFile": ".env"}, "mcpServers.bad: its envFile is not read; write the variables into env"),
        ("npx server", "mcpServers.bad: write an object"),
        (
            {"url": "http://a", "oauth": {"grantType": "client_credentials"}},
            "mcpServers.bad: oauth with a clientSecret or client_credentials needs clientId, clientSecret and issuer",
        ),
        (
            {"url": "http://a", "oauth": {"clientId": "a", "clientSecret": "b"}},
            "mcpServers.bad: oauth with a clientSecret or client_credentials needs clientId, clientSecret and issuer",
        ),
        ({"command": "x", "disabled": "maybe"}, "mcpServers.bad.disabled: Input should be a valid boolean"),
    ],
)
def test_invalid_server_is_left_out_and_reported_with_place(tmp_path: Path, entry: Any, said: str) -> None:
    path = written(tmp_path, bad=entry, good={"command": "x"})
    assert [skill.name for skill in McpServers(path).servers()] == ["good"]
    problems = McpServers(path).problems()
    assert any(problem.startswith(f"{path}: {said}") for problem in problems)
    assert all(problem.startswith(f"{path}: mcpServers.bad") for problem in problems)


def test_every_fault_is_reported_without_values(tmp_path: Path) -> None:
    path = written(tmp_path, a={"command": 5}, b={"command": "x", "headers": {"Authorization": ["hunter2"]}})
    problems = McpServers(path).problems()
    assert [line.split(": ")[1] for line in problems] == ["mcpServers.a.command", "mcpServers.b.headers.Authorization"]
    assert "hunter2" not in str(problems)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        # VS Code: other keys, comments, a comma after the last item.
        ('{"servers": {"a": {"type": "stdio", "command": "x"}}, "inputs": []}', {"a": "x"}),
        (
            '{ // "servers"\n "mcpServers": {/* two,\n } */ "a": {"command": "x", "args": ["//no", "/*no*/",],}, },}',
            {"a": "x //no /*no*/"},
        ),
        # Gemini CLI, Windsurf, LangChain, Cline.
        ('{"mcpServers": {"a": {"httpUrl": "http://a/mcp", "headers": null}}}', {"a": "http://a/mcp"}),
        ('{"mcpServers": {"a": {"url": "http://a", "type": "streamableHttp"}}}', {"a": "http://a"}),
        ('{"mcpServers": {"a": {"command": "x"}}, "mcp": {"allowed": ["a"], "serverCommand": "y"}}', {"a": "x"}),
        ('{"mcpServers": {"b": {"serverUrl": "http://b"}}}', {"b": "http://b"}),
        ('{"servers": {"b": {"command": "y"}}, "mcpServers": {"a": {"command": "x"}}}', {"a": "x", "b": "y"}),
        ('{"mcpServers": {}}', {}),
        (
            '{"mcpServers": {"a": {"command": "x", "disabled": "true"}, "b": {"command": "x", "disabled": null}}}',
            {"b": "x"},
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "enabled": "False"}, "b": {"command": "x", "enabled": "true"}}}',
            {"b": "x"},
        ),
        ('{"mcpServers": {"a": {"command": "${env:TOWN}/${TOWN:-x}"}}}', {"a": "Graz/Graz"}),
    ],
)
def test_files_of_other_clients_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, servers: dict[str, str]
) -> None:
    monkeypatch.setenv("TOWN", "Graz")
    path = tmp_path / "mcp.json"
    path.write_text(text)
    read = read_server_file(path)
    assert read.problems == ()
    assert {one.name: " ".join([one.command, *one.args]) if one.command else one.url for one in read.servers} == servers


@pytest.mark.parametrize(
    ("first", "kept"), [({"command": "x"}, ["x"]), ({"command": "x", "disabled": True}, []), ({"comand": "x"}, [])]
)
def test_first_of_two_servers_with_the_same_name_counts(tmp_path: Path, first: Any, kept: list[str]) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"servers": {"a": {"command": "y"}}, "mcpServers": {"a": first}}))
    read = read_server_file(path)
    assert [one.command for one in read.servers] == kept
    assert read.problems[-1] == (
        f"{path}: servers.a: mcpServers.a has the same name already; give it another name or remove it"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"mcpServers": {"a": }}', ", line 1, column 22: not JSON: Expecting value."),
        ('{"statusLine": {"command": "x"}, "permissions": {}}', ': write the servers as {"mcpServers"'),
        ('{"mcp": {"allowed": ["a"]}}', ': write the servers as {"mcpServers"'),
        ("\udcff", ": the file of MCP servers is not UTF-8."),
    ],
)
def test_invalid_file_is_reported(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(content, errors="surrogateescape")
    with pytest.raises(SettingsError) as error:
        McpServers(path).servers()
    assert str(error.value).startswith(f"{path}{said}")


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.json: the file of MCP servers cannot be read \(No such file"):
        McpServers(tmp_path / "nothing.json").servers()


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["git", "git_hub"], ["git_hub"]),
        (["my files", "my_files"], []),
        (["a" * 40, "a" * 50], []),
    ],
)
def test_server_with_clashing_prefix_is_left_out(tmp_path: Path, names: list[str], kept: list[str]) -> None:
    path = written(tmp_path, **{name: {"command": "x"} for name in names})
    read = read_server_file(path)
    assert [one.name for one in read.servers] == kept
    assert [problem.split(": ")[1] for problem in read.problems] == [
        f"mcpServers.{name}" for name in names if name not in kept
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "…", "command": "x"}, "needs a name with letters or digits"),
        ({"name": "a"}, "needs either a command to run or a url"),
        ({"name": "a", "command": "x", "timeout_seconds": 0}, "timeout_seconds: Input should be greater than 0"),
    ],
)
def test_a_declaration_in_code_is_checked_too(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(AgentError, match=said):
        McpServer(**fields)


def test_oauth_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ITS_SECRET", "word")
    client = {"clientId": "a", "clientSecret": "${ITS_SECRET}", "scopes": ["b"], "issuer": "https://c"}
    read = read_server_file(written(tmp_path, a={"url": "http://a", "oauth": {**client, "callbackPort": 1}}))
    assert [server.oauth for server in read.servers] == [OAuth("authorization_code", "a", "word", ("b",), "https://c")]


async def test_server_can_be_probed_without_application(tmp_path: Path) -> None:
    tried = await McpServer("none", command=str(tmp_path / "nothing")).probe()
    assert tried.reason == f"there is no command or folder '{tmp_path / 'nothing'}'"
