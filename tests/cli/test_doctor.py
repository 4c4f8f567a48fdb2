"""The doctor reports every fault with advice: settings, database, agents, MCP servers, port."""

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callboard._cli import build_parser
from callboard._cli.doctor import run as examine
from callboard._cli.doctor.settings import Context
from callboard._version import __version__
from callboard.storage import Store
from tests.cli.conftest import Doctor, add_functions
from tests.fakes.http_answer import answering
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish
from tests.processes import COMMAND, environment, run
from tests.scripts import stand_in
from tests.serving import serving

MCP_SERVER = str(Path(__file__).parent.parent / "skills" / "mcp" / "our_server.py")


def mcp_file(folder: Path, **servers: object) -> str:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return str(file)


async def make_database(folder: Path) -> Path:
    store = await Store.open(f"sqlite+aiosqlite:///{folder / 'data' / 'callboard.db'}")
    await store.close()
    return folder / "data" / "callboard.db"


# ------------------------------------------------------------------------------------------------- as a whole


async def test_doctor_of_a_correct_setup_prints_only_check_marks_and_returns_0(tmp_path: Path) -> None:
    database = await make_database(tmp_path)
    agents = tmp_path / "mine.py"
    agents.write_text('from callboard import Agent, register\nregister(Agent("mine"))\n')
    given = {
        "DATA_DIR": str(database.parent),
        "API_KEY": "the key of all",
        "OPEN_WEBUI_JWT_SECRET": "the secret that Open WebUI signs with",
        "AGENTS": str(agents),
        "MODEL": "m",
        "MCP_SERVERS": mcp_file(tmp_path, ours={"command": sys.executable, "args": [MCP_SERVER]}),
        "SEERR_URL": "http://seerr.local",
        "SEERR_API_KEY": "the key of seerr",
        "HOME_ASSISTANT_URL": "http://home.local",
        "HOME_ASSISTANT_TOKEN": "the token of home",
    }
    with stand_in.serving() as webui:
        add_functions(webui)
        sign_in = ["--open-webui", webui.url, "--email", stand_in.ADMIN, "--password", stand_in.PASSWORD]
        script = [chunks(call("get_weather", '{"city": "Paris"}', call_id="c"), finish("tool_calls"))]
        async with OpenAIServer(script, models=["m"]) as model:
            given |= {"MODEL_BASE_URL": model.base_url}
            ended = await asyncio.to_thread(run, tmp_path, "doctor", *sign_in, **given)
    assert ended.returncode == 0, ended.stdout
    assert ended.stderr == ""
    # The SQLite of the machine may be one that is warned of.
    assert {line[0] for line in ended.stdout.splitlines() if "WAL-reset" not in line} == {"✓"}
    subjects = [line[2:].partition(":")[0] for line in ended.stdout.splitlines()]
    assert list(dict.fromkeys(subjects)) == [
        "settings",
        "data folder",
        "database",
        "SQLite",
        "keys",
        "users",
        "model",
        "agents",
        "MCP server ours",
        "port",
        "Open WebUI",
        "pipe",
        "function for approvals",
    ]
    for secret in (stand_in.PASSWORD, "the key of", "the token of"):
        assert secret not in ended.stdout


def test_several_faults_are_found_in_one_run_and_no_traceback_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = run(
        tmp_path, "doctor", PORT="many", DATA_DIR=str(tmp_path / "file"), AGENTS="gone.py", MCP_SERVERS="gone.json"
    )
    assert ended.returncode == 1
    assert ended.stderr == ""
    broken = [line[2:].partition(":")[0] for line in ended.stdout.splitlines() if line.startswith("✗")]
    assert list(dict.fromkeys(broken)) == ["settings", "data folder", "database", "agents", "MCP servers"]


def test_control_characters_of_another_program_are_removed(doctor: Doctor) -> None:
    with answering(400, '{"error": {"message": "\\u001b[2Jtool"}}') as port:
        found = doctor(MODEL_BASE_URL=f"http://127.0.0.1:{port}/v1", MODEL="m")
    assert "tool" in "".join(found.of("model"))
    assert "\x1b" not in "".join(found.lines)


def test_a_terminal_without_check_marks_gets_the_lines_too(tmp_path: Path) -> None:
    variables = environment(tmp_path) | {"PYTHONIOENCODING": "ascii"}
    command = [*COMMAND, "doctor"]
    ended = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\u2713 settings: read from the environment\n" in ended.stdout


# --------------------------------------------------------------------------------------------------- settings


def test_every_wrong_setting_is_named_and_the_other_checks_go_on(doctor: Doctor) -> None:
    found = doctor(PORT="many", HOST="0.0.0.0", SEERR_URL="http://seerr.local", RESULT_LINK_SECONDS="60")
    named = "\n".join(found.broken)
    for words in ("CALLBOARD_PORT", "set CALLBOARD_API_KEY", "give its key", "CALLBOARD_PUBLIC_URL"):
        assert words in named
    assert found.of("agents")[0].startswith("✓")


def test_no_value_of_a_wrong_setting_is_shown(doctor: Doctor) -> None:
    assert "sk-secret" not in "\n".join(doctor(PORT="sk-secret", TOOL_TIMEOUT_SECONDS="sk-secret").lines)


def test_a_misspelt_setting_is_named_with_the_one_that_is_meant(doctor: Doctor) -> None:
    assert doctor(MODEL_BASE_ULR="x").broken == [
        "✗ settings: CALLBOARD_MODEL_BASE_ULR is not a setting → write CALLBOARD_MODEL_BASE_URL"
    ]


def test_a_broken_env_file_is_reported_and_the_other_checks_run(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    found = doctor()
    assert found.broken == ["✗ settings: .env is not UTF-8: save it as UTF-8, or move it away."]
    assert found.of("port")[0].startswith("✓")


def test_a_setting_of_the_env_file_is_checked_too(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CALLBOARD_MAX_RUNS=0\n")
    [line] = doctor().broken
    assert "CALLBOARD_MAX_RUNS" in line


def test_an_unreadable_key_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "data" / "api_key").touch(mode=0o600)
    [line] = doctor().broken
    assert "api_key does not hold a key on one line: delete" in line


# --------------------------------------------------------------------------------------------------- database


def test_a_file_in_the_place_of_the_data_folder_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = doctor(DATA_DIR=str(tmp_path / "file" / "data"))
    file = tmp_path / "file"
    assert found.of("data folder") == [
        f"✗ data folder: {file} is not a folder → correct that, or set CALLBOARD_DATA_DIR to another folder"
    ]


def test_a_data_folder_that_is_not_writable_is_reported(doctor: Doctor) -> None:
    # A folder in which not even root can create a file.
    [line] = doctor(DATA_DIR="/proc/self/fd", DATABASE_URL="sqlite+aiosqlite://").broken
    assert "is not writable" in line
    assert "CALLBOARD_DATA_DIR" in line


def test_before_the_first_start_nothing_is_broken_and_nothing_is_created(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor(DATA_DIR=str(tmp_path / "new" / "data"))
    assert found.exit_code == 0
    assert "does not exist yet" in found.of("database")[0]
    assert not (tmp_path / "new").exists()


async def test_missing_migrations_are_counted_and_not_run(doctor: Doctor, tmp_path: Path) -> None:
    database = await make_database(tmp_path)
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM alembic_version")
    [line] = (await asyncio.to_thread(doctor)).of("database")
    assert line == "– database: it lacks 4 migrations of this version → callboard serve runs them when it starts"
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == []


async def test_a_database_of_a_newer_version_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    database = await make_database(tmp_path)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    [line] = (await asyncio.to_thread(doctor)).broken
    assert line.startswith("✗ database: ")
    assert "was made by another version of Callboard" in line


def test_a_file_that_is_not_a_database_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "data" / "callboard.db").write_text("This is no database, by any means.\n" * 100)
    [line] = doctor().broken
    assert "file is not a database" in line


async def test_a_damaged_database_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    database = await make_database(tmp_path)
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'")
        [(page_bytes,)] = connection.execute("PRAGMA page_size")
    with database.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xee" * page_bytes)
    [line] = (await asyncio.to_thread(doctor)).broken
    assert line.startswith("✗ database: ")
    assert "malformed" in line or "damaged" in line


@pytest.mark.parametrize(
    ("version", "has_bug"),
    [
        ((3, 6, 23), False),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 3), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_a_version_of_sqlite_that_may_damage_a_database_is_named(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], has_bug: bool
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    monkeypatch.setattr(sqlite3, "sqlite_version", ".".join(map(str, version)))
    found = doctor()
    [line] = found.of("SQLite")
    assert found.exit_code == 0
    assert ".".join(map(str, version)) in line
    assert ("WAL-reset" in line, "3.51.3" in line.partition("→")[2]) == (has_bug, has_bug)


async def test_a_read_only_database_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    database = await make_database(tmp_path)
    url = f"sqlite+aiosqlite:///file:{database}?mode=ro&uri=true"
    [line] = (await asyncio.to_thread(doctor, DATABASE_URL=url)).broken
    assert "readonly database" in line


def test_an_unreachable_database_server_is_reported_without_its_password(doctor: Doctor) -> None:
    url = "postgresql+asyncpg://callboard:the-password@127.0.0.1:9/callboard"
    found = doctor(DATABASE_URL=url)
    assert [line[:10] for line in found.broken] == ["✗ database"]
    assert "the-password" not in "\n".join(found.lines)


def test_a_database_that_does_not_answer_is_reported_after_the_timeout(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        [line] = doctor(
            "--timeout", "0.5", DATABASE_URL=f"postgresql+asyncpg://c@127.0.0.1:{port}/c?ssl=disable"
        ).broken
    assert line.startswith("✗ database: it did not answer in time")


# ---------------------------------------------------------------------------------------- agents, MCP servers


def agent_file(folder: Path, text: str) -> str:
    file = folder / "mine.py"
    file.write_text(text)
    return str(file)


def test_an_agent_file_that_raises_is_named_with_its_line(doctor: Doctor, tmp_path: Path) -> None:
    [line] = doctor(AGENTS=agent_file(tmp_path, "\nraise RuntimeError('no')\n")).broken
    assert "mine.py, line 2: RuntimeError: no. Correct the mistake and start again" in line


def test_an_agent_file_may_run_an_event_loop_as_with_serve(doctor: Doctor, tmp_path: Path) -> None:
    text = """
import asyncio
from callboard import Agent, register
asyncio.run(asyncio.sleep(0))
register(Agent("mine"))
"""
    assert "mine (0 tools)" in doctor(AGENTS=agent_file(tmp_path, text)).of("agents")[0]


def test_an_agent_without_its_settings_is_listed_with_them(doctor: Doctor) -> None:
    assert doctor().of("agent media") == ["– agent media: left out, needs CALLBOARD_SEERR_URL, CALLBOARD_SEERR_API_KEY"]


def test_incomplete_settings_of_a_skill_are_reported_and_the_other_agents_are_listed(doctor: Doctor) -> None:
    found = doctor(SEERR_URL="http://seerr.local", ALLOWED_HOSTS="http://nas.lan")
    [seerr, hosts] = sorted(found.broken, reverse=True)
    assert "CALLBOARD_SEERR_URL is set: give its key in CALLBOARD_SEERR_API_KEY" in seerr
    assert "CALLBOARD_ALLOWED_HOSTS: 'http://nas.lan' is not a host name" in hosts
    assert "assistant" in found.of("agents")[0]


LACKING = """
from callboard import Agent, Skill, register
lines = ("web_fetch: pip install 'callboard[web]'",)
register(Agent("mine", skills=[Skill("web", "Reads pages.", "You can read.", missing=lines)]))
"""


def test_missing_libraries_of_an_agent_are_reported_with_advice(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor(AGENTS=agent_file(tmp_path, LACKING))
    assert found.of("agent mine") == ["– agent mine: lacks web_fetch: pip install 'callboard[web]'"]
    assert found.exit_code == 0


def test_mcp_servers_that_fail_and_tools_that_are_left_out_are_reported(doctor: Doctor, tmp_path: Path) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("fetch", "good")]
    listed = [*tools, {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/b"}}}}]
    (tmp_path / "script.json").write_text(json.dumps({"pages": [listed], "results": {}}))
    plain = str(Path(MCP_SERVER).with_name("plain_server.py"))
    ours = {"command": sys.executable, "args": [plain, str(tmp_path / "script.json")], "confirm": "unless_read_only"}
    found = doctor(
        MCP_SERVERS=mcp_file(tmp_path, gone={"command": "no-such-command-anywhere"}, web=ours, wrong={"url": "x"})
    )
    wrong, gone, double = found.broken
    assert "mcpServers.wrong: The MCP server 'wrong' needs a url that begins with http" in wrong
    assert gone.startswith("✗ MCP server gone: there is no command or folder 'no-such-command-anywhere'")
    assert double.startswith("✗ MCP servers: several tools are named web_fetch, so the assistant gets none of them")
    assert found.of("MCP server web") == [
        "✓ MCP server web: 2 tools",
        "– MCP server web: the tool bad is left out: its schema refers at '/properties/a' to '#/b', which is no "
        "part of it",
        "– MCP server web: all its tools need approval: the server is not trusted to mark tools that only read",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"mcpServers": {"a": {"comand": "x"}}}', "mcpServers.a"), ("{", "not JSON"), ("[]", "write the servers as")],
)
def test_a_wrong_file_of_mcp_servers_is_reported_with_the_place(
    doctor: Doctor, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "mcp.json").write_text(text)
    [line] = doctor(MCP_SERVERS="mcp.json").broken
    assert line.startswith("✗ MCP servers: mcp.json")
    assert words in line


def without(library: str, folder: Path, **settings: str) -> list[str]:
    """The doctor's lines with the mark ✗ if this library is not installed."""
    code = f"import sys; sys.modules[{library!r}] = None; from callboard._cli import main; sys.exit(main(['doctor']))"
    command = [sys.executable, "-c", code]
    variables = environment(folder, **settings)
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (1, "")
    return [line for line in ended.stdout.splitlines() if line.startswith("✗")]


@pytest.mark.slow
def test_an_extra_that_is_not_installed_is_named(tmp_path: Path) -> None:
    file = mcp_file(tmp_path, ours={"command": sys.executable, "args": [MCP_SERVER]})
    [line] = without("mcp", tmp_path, MCP_SERVERS=file)
    assert "pip install callboard[mcp]" in line
    [line] = without("asyncpg", tmp_path, DATABASE_URL="postgresql+asyncpg://me@127.0.0.1/db")
    assert "pip install 'callboard[postgresql]'" in line


async def check_that_fails(context: Context) -> AsyncIterator[str]:
    yield "✓ first: is well"
    raise RuntimeError("sk-secret")


async def check_that_goes_on(context: Context) -> AsyncIterator[str]:
    yield "✓ last: is well"


def test_a_check_that_raises_is_reported_without_its_message_and_the_others_run(
    doctor: Doctor, capsys: pytest.CaptureFixture[str]
) -> None:
    options = build_parser().parse_args(["doctor"])
    assert examine(options, checks={"first": check_that_fails, "last": check_that_goes_on}) == 1
    said = capsys.readouterr()
    assert "✓ first: is well\n✗ first: the check itself failed: RuntimeError in test_doctor.py" in said.out
    assert "✓ last: is well" in said.out
    assert "sk-secret" not in said.out + said.err


# ------------------------------------------------------------------------------------------------------- port


def test_a_port_in_use_by_another_program_is_reported(doctor: Doctor) -> None:
    with answering(200, "<html>") as port:
        [line] = doctor(PORT=str(port)).broken
    assert line.startswith("✗ port: ")
    assert "stop the program that uses the port, or set another port" in line


def test_a_program_on_the_port_that_does_not_answer_is_reported_after_the_timeout(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        [line] = doctor("--timeout", "0.5", PORT=str(silent.getsockname()[1])).broken
    assert line.startswith("✗ port: ")


async def test_a_port_in_use_by_a_callboard_server_is_correct(doctor: Doctor, tmp_path: Path) -> None:
    async with serving(tmp_path / "other") as service:
        url = str(service.client.base_url)
        found = await asyncio.to_thread(doctor, PORT=url.rpartition(":")[2])
    assert found.of("port") == [f"✓ port: a Callboard server runs at {url}, version {__version__}"]


def test_a_callboard_server_that_is_unhealthy_or_of_another_version_is_reported(doctor: Doctor) -> None:
    ill = {"status": "error", "version": "0", "protocol": 1, "reason": "the disk is full, says sk-the-key"}
    with answering(503, json.dumps(ill)) as port:
        found = doctor(PORT=str(port), API_KEY="sk-the-key")
    assert "the disk is full" in found.broken[0]
    assert "sk-the-key" not in "\n".join(found.lines)
    with answering(200, json.dumps({"status": "ok", "version": "0.0.1", "protocol": 1})) as port:
        assert "restart it to run version" in doctor(PORT=str(port)).of("port")[0]


def test_an_address_of_another_machine_is_reported(doctor: Doctor) -> None:
    [line] = doctor(HOST="192.0.2.1", API_KEY="a long random key").broken
    assert "cannot listen on 192.0.2.1" in line
