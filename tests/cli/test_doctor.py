"""The doctor reports every fault with advice: settings, database, model, Open WebUI."""

import asyncio
import json
import logging
import pkgutil
import re
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from callboard._cli import build_parser, main
from callboard._cli import doctor as command
from callboard._version import __version__
from callboard.models.local_endpoints import LocalEndpoint
from callboard.storage import Store
from callboard.storage.sql.migrations import versions
from tests.fakes.http_answer import answering
from tests.fakes.openai_server import Answer, Body, OpenAIServer, Refusal, Script, Silence, call, chunks, finish, text
from tests.processes import COMMAND, environment, run
from tests.scripts import stand_in
from tests.scripts.stand_in import ADMIN, API_KEY, PASSWORD, StandIn

FUNCTIONS = Path(__file__).parents[2] / "pipe"


@dataclass(frozen=True)
class Diagnosis:
    """The printed lines and the exit code."""

    lines: list[str]
    exit_code: int

    @property
    def broken(self) -> list[str]:
        """The lines with the mark ✗."""
        return [line for line in self.lines if line.startswith("✗ ")]

    def of(self, subject: str) -> list[str]:
        """The lines about this subject."""
        return [line for line in self.lines if line[2:].startswith(f"{subject}: ")]


@dataclass(frozen=True)
class Doctor:
    """Runs `callboard doctor` in an empty folder, with these settings and no others."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, **settings: str) -> Diagnosis:
        own = {"DATA_DIR": str(self.folder / "data"), "PORT": "0", "FIND_MODEL": "false"}
        for name, value in (own | settings).items():
            self.monkeypatch.setenv(f"CALLBOARD_{name}", value)
        exit_code = main(["doctor", *arguments])
        said = self.capsys.readouterr()
        assert said.err == ""
        lines = said.out.splitlines()
        assert all(line[:2] in ("✓ ", "✗ ", "– ") for line in lines), lines
        assert exit_code == any(line.startswith("✗ ") for line in lines)
        return Diagnosis(lines, exit_code)


def add_functions(webui: StandIn) -> None:
    """Put the pipe and the function for approvals into an Open WebUI."""
    for function_id, kind in (("callboard", "pipe"), ("callboard_approvals", "filter")):
        content = (FUNCTIONS / f"callboard_{kind}.py").read_text()
        function = {"id": function_id, "type": kind, "content": content}
        webui.functions[function_id] = {**function, "is_active": True, "is_global": kind == "filter"}


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Doctor]:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    handlers = list(logging.getLogger().handlers)
    yield Doctor(tmp_path, monkeypatch, capsys)
    # The command configures the logging of its process, which the other tests share.
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers


async def make_database(folder: Path) -> Path:
    store = await Store.open(f"sqlite+aiosqlite:///{folder / 'data' / 'callboard.db'}")
    await store.close()
    return folder / "data" / "callboard.db"


# ------------------------------------------------------------------------------------------------- as a whole


async def test_doctor_of_a_correct_setup_prints_only_check_marks_and_returns_0(tmp_path: Path) -> None:
    database = await make_database(tmp_path)
    given = {
        "DATA_DIR": str(database.parent),
        "API_KEY": "the key of all",
        "OPEN_WEBUI_JWT_SECRET": "the secret that Open WebUI signs with",
        "MODEL": "m",
    }
    with stand_in.serving() as webui:
        add_functions(webui)
        sign_in = ["--open-webui", webui.url, "--email", ADMIN, "--password", PASSWORD]
        async with OpenAIServer([CALLS], models=["m"]) as model:
            ended = await asyncio.to_thread(run, tmp_path, "doctor", *sign_in, MODEL_BASE_URL=model.base_url, **given)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {line[0] for line in ended.stdout.splitlines()} == {"✓"}
    subjects = [line[2:].partition(":")[0] for line in ended.stdout.splitlines()]
    assert list(dict.fromkeys(subjects)) == [
        "settings",
        "database",
        "model",
        "Open WebUI",
        "pipe",
        "function for approvals",
    ]
    assert PASSWORD not in ended.stdout
    assert "the key of" not in ended.stdout


def test_several_faults_are_found_in_one_run_and_no_traceback_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = run(
        tmp_path,
        "doctor",
        DATA_DIR=str(tmp_path / "file"),
        AGENTS="gone.py",
        MODEL_BASE_URL="http://127.0.0.1:9/v1",
    )
    assert (ended.returncode, ended.stderr) == (1, "")
    broken = [line[2:].partition(":")[0] for line in ended.stdout.splitlines() if line.startswith("✗")]
    assert broken == ["settings", "database", "model"]


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


def test_every_wrong_setting_is_named_without_its_value_and_nothing_else_is_checked(doctor: Doctor) -> None:
    found = doctor(PORT="sk-secret", TOOL_TIMEOUT_SECONDS="sk-secret", SEERR_URL="http://seerr.local", NO_SUCH="x")
    named = "\n".join(found.broken)
    for words in ("CALLBOARD_PORT", "CALLBOARD_TOOL_TIMEOUT_SECONDS", "give its key", "CALLBOARD_NO_SUCH is not a"):
        assert words in named
    assert "sk-secret" not in "\n".join(found.lines)
    assert found.lines[-1] == "– database, model, Open WebUI: not checked → correct the settings first"


def test_a_misspelt_setting_is_named_with_the_one_that_is_meant(doctor: Doctor) -> None:
    assert doctor(MODEL_BASE_ULR="x").broken == [
        "✗ settings: CALLBOARD_MODEL_BASE_ULR is not a setting → write CALLBOARD_MODEL_BASE_URL"
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "✗ settings: .env is not UTF-8: save it as UTF-8, or move it away."),
        (b"CALLBOARD_MAX_RUNS=0\n", "CALLBOARD_MAX_RUNS"),
    ],
)
def test_the_env_file_and_its_settings_are_checked(doctor: Doctor, tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / ".env").write_bytes(content)
    [line] = doctor().broken
    assert words in line


def test_a_missing_key_and_users_without_a_signature_are_notes(doctor: Doctor) -> None:
    key, users = doctor().of("settings")[1:]
    assert key.startswith("– settings: no key is set")
    assert users.startswith("– settings: a client with a key may act for any user")
    assert doctor(API_KEY="k", OPEN_WEBUI_JWT_SECRET="").of("settings")[1:] == [users]


OWN_SETTINGS = """
import asyncio
from callboard import Agent, register
from callboard.settings import SkillSettings

class TeaSettings(SkillSettings):
    tea_house_of_doctor: str = ""

asyncio.run(asyncio.sleep(0))
register(Agent("mine"))
"""


def test_agent_files_are_loaded_as_with_serve(doctor: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN_SETTINGS)
    assert doctor(AGENTS=str(file), TEA_HOUSE_OF_DOCTOR="x").broken == []
    file.write_text("\nraise RuntimeError('no')\n")
    [line] = doctor(AGENTS=str(file)).broken
    assert "mine.py, line 2: RuntimeError: no. Correct the mistake and start again" in line


# --------------------------------------------------------------------------------------------------- database


def test_a_folder_that_cannot_be_written_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert doctor(DATA_DIR=str(file / "data")).of("database") == [
        f"✗ database: {file} is not a folder → correct that, or set CALLBOARD_DATA_DIR to another folder"
    ]
    # A folder in which not even root can create a file.
    [line] = doctor(DATA_DIR="/proc/self/fd").broken
    assert "is not writable" in line


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
    count = len([*pkgutil.iter_modules(versions.__path__)])
    assert line == f"– database: it lacks {count} migrations of this version → callboard serve runs them when it starts"
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == []


async def test_a_database_of_a_newer_version_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    database = await make_database(tmp_path)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    [line] = (await asyncio.to_thread(doctor)).broken
    assert line.startswith("✗ database: ")
    assert "was made by another version of Callboard" in line


def write_no_database(database: Path) -> None:
    database.write_text("This is no database, by any means.\n" * 100)


def damage(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'")
        [(page_bytes,)] = connection.execute("PRAGMA page_size")
    with database.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xee" * page_bytes)


@pytest.mark.parametrize(
    ("breaking", "words"), [(write_no_database, "file is not a database"), (damage, "(malformed|damaged)")]
)
async def test_a_damaged_database_is_reported(
    doctor: Doctor, tmp_path: Path, breaking: Callable[[Path], None], words: str
) -> None:
    breaking(await make_database(tmp_path))
    [line] = (await asyncio.to_thread(doctor)).broken
    assert line.startswith("✗ database: ")
    assert re.search(words, line)


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


# ------------------------------------------------------------------------------------------------------ model


CALLS = chunks(call("get_weather", '{"city": "Paris"}', call_id="c"), finish("tool_calls"))
TALKS = chunks(text("It is sunny in Paris."), finish("stop"))


async def ask(doctor: Doctor, script: Script, models: list[str], *arguments: str, **settings: str) -> Diagnosis:
    async with OpenAIServer(script, models=models) as server:
        given = {"MODEL_BASE_URL": server.base_url, "MODEL_API_KEY": "sk-the-key", **settings}
        return await asyncio.to_thread(doctor, *arguments, **given)


async def test_a_model_that_calls_the_tool_is_correct(doctor: Doctor) -> None:
    async with OpenAIServer([CALLS], models=["m"]) as server:
        found = await asyncio.to_thread(doctor, MODEL_BASE_URL=server.base_url, MODEL="m")
    assert found.of("model") == [
        "✓ model: the endpoint answers and serves m",
        "✓ model: the key is accepted; calls a tool natively: yes",
    ]
    assert server.asked == []
    [asked] = server.requests
    assert len(asked["tools"]) == 1
    assert "tool_choice" not in asked


async def test_a_model_that_answers_with_text_is_reported_with_the_setting(doctor: Doctor) -> None:
    [line] = (await ask(doctor, [TALKS], ["m"])).broken
    assert line == (
        "✗ model: calls a tool natively: no, in one probe → "
        "set CALLBOARD_TOOL_FORMAT=react, or CALLBOARD_REACT_MODELS=m"
    )


@pytest.mark.parametrize("setting", [{"TOOL_FORMAT": "react"}, {"REACT_MODELS": "m*"}])
async def test_with_another_format_a_model_need_not_call_natively(doctor: Doctor, setting: dict[str, str]) -> None:
    found = await ask(doctor, [TALKS], ["m"], MODEL="m", **setting)
    assert found.broken == []
    assert "calls a tool natively: no, but react needs no native calls" in found.of("model")[-1]


async def test_an_endpoint_that_refuses_tools_counts_as_not_calling_natively(doctor: Doctor) -> None:
    [line] = (await ask(doctor, [Refusal(400, "m does not support tools")], ["m"], MODEL="m")).broken
    assert "calls a tool natively: no" in line


OWN_TOOL = """
from callboard import Agent, register, tool

@tool
def sell(seats: int) -> str:
    "Sells seats."
    return "sold"

register(Agent("clerk", tools=[sell]))
register(Agent("scribe", tools=[sell], tool_format="react"))
"""


async def test_a_tool_of_an_agent_that_the_endpoint_refuses_is_reported(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "clerk.py").write_text(OWN_TOOL)

    def answer(body: Body) -> Answer:
        return Refusal(400, "Invalid schema for function 'sell': no") if "sell" in str(body.get("tools")) else CALLS

    [line] = (await ask(doctor, answer, ["m"], AGENTS=str(tmp_path / "clerk.py"))).broken
    assert line == (
        "✗ model: it refuses the tool sell of clerk: Invalid schema for function 'sell': no → simplify its schema"
    )


async def test_a_missing_model_is_reported_with_the_available_models(doctor: Doctor) -> None:
    [line] = (await ask(doctor, [], ["a", "b"], MODEL="gone")).broken
    assert line == "✗ model: the endpoint does not serve gone → set CALLBOARD_MODEL to one of these: a, b"


async def test_a_key_that_only_the_completion_refuses_is_reported_and_not_shown(doctor: Doctor) -> None:
    found = await ask(doctor, [Refusal(401, "Incorrect API key: sk-the-key")], ["m"])
    [line] = found.broken
    assert "refused the key (401)" in line
    assert "CALLBOARD_MODEL_API_KEY" in line
    assert "sk-the-key" not in "\n".join(found.lines)


def test_a_refused_key_is_reported(doctor: Doctor) -> None:
    with answering(401, '{"error": {"message": "no"}}') as port:
        [line] = doctor(MODEL_BASE_URL=f"http://127.0.0.1:{port}/v1").broken
    assert "refused the key (401)" in line


def test_an_unreachable_endpoint_is_reported(doctor: Doctor) -> None:
    [line] = doctor(MODEL_BASE_URL="http://127.0.0.1:9/v1").broken
    assert "cannot be reached" in line


def test_an_endpoint_that_does_not_answer_is_reported_after_the_timeout(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        [line] = doctor("--timeout", "0.5", MODEL_BASE_URL=url).broken
    assert "did not answer within 0.5 s" in line


async def test_an_answer_that_does_not_begin_or_end_is_reported_after_the_timeout(doctor: Doctor) -> None:
    [line] = (await ask(doctor, [Silence()], ["m"], "--timeout", "1")).broken
    assert "did not answer within" in line or "did not answer in time" in line
    [line] = (await ask(doctor, [chunks(text("Well"), ending="hang")], ["m"], "--timeout", "1")).broken
    assert "did not answer within" in line or "did not answer in time" in line


async def test_an_endpoint_that_lists_no_models_is_probed_anyway(doctor: Doctor) -> None:
    found = await ask(doctor, [CALLS], [], MODEL="m")
    assert found.broken == []
    assert found.of("model")[-1].endswith("natively: yes")


def test_a_web_page_is_reported_as_no_endpoint(doctor: Doctor) -> None:
    with answering(200, "<html>", {"Content-Type": "text/html"}) as port:
        found = doctor(MODEL_BASE_URL=f"http://127.0.0.1:{port}")
    assert len(found.broken) == 1


def test_without_a_model_setting_the_local_model_for_serve_is_reported(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CALLBOARD_DATA_DIR", str(doctor.folder))
    monkeypatch.setenv("CALLBOARD_PORT", "0")
    options = build_parser().parse_args(["doctor", "--timeout", "5"])
    with answering(200, json.dumps({"data": [{"id": "qwen3"}]}), {"Content-Type": "application/json"}) as port:
        command.run(options, endpoints=[LocalEndpoint("Ollama", port)])
    said = capsys.readouterr().out
    assert "– model: none is set; Ollama on this machine serves qwen3 → callboard serve uses it; choose another" in said
    assert "✓ model: the endpoint answers and serves qwen3" in said


# ------------------------------------------------------------------------------------------------- Open WebUI


KEY = "the-servers-key"


@pytest.fixture
def webui() -> Iterator[StandIn]:
    with stand_in.serving() as served:
        add_functions(served)
        yield served


@pytest.fixture
def examine(doctor: Doctor, webui: StandIn) -> Any:
    def with_pipe(*arguments: str, **settings: str) -> Diagnosis:
        sign_in = () if "--api-key" in arguments else ("--email", ADMIN, "--password", PASSWORD)
        given = {"PORT": "8701", "API_KEY": KEY, **settings}
        found = doctor("--open-webui", webui.url, *sign_in, *arguments, **given)
        shown = "\n".join(found.lines)
        assert not any(secret in shown for secret in (PASSWORD, KEY, API_KEY, "another-key"))
        return found

    return with_pipe


def test_a_correct_pipe_is_reported_and_nothing_is_changed(examine: Any, webui: StandIn) -> None:
    assert examine().lines[-4:] == [
        f"✓ Open WebUI: version 0.12.4 answers at {webui.url}",
        f"✓ pipe: version {__version__}, the same as this server",
        f"✓ function for approvals: version {__version__}, the same as this server",
        "✓ Open WebUI: it reaches a server with the agents demo",
    ]
    assert [asked for asked in webui.calls if asked.startswith("POST")] == ["POST /api/v1/auths/signin"]


def test_an_api_key_signs_in_too(examine: Any) -> None:
    assert examine("--api-key", API_KEY).exit_code == 0


def test_credentials_of_the_env_file_are_used(doctor: Doctor, webui: StandIn, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"OPEN_WEBUI_EMAIL={ADMIN}\nOPEN_WEBUI_PASSWORD={PASSWORD}\n")
    assert doctor("--open-webui", webui.url, PORT="8701", API_KEY=KEY).exit_code == 0


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9", "No Open WebUI answers at http://127.0.0.1:9"),
        ("localhost:3000", "Open WebUI"),
        ("http://[", "Open WebUI"),
    ],
)
def test_an_address_without_an_open_webui_is_reported(doctor: Doctor, url: str, words: str) -> None:
    [line] = doctor("--open-webui", url, "--api-key", "k").broken
    assert words in line


def test_a_wrong_password_is_reported(examine: Any) -> None:
    [line] = examine("--password", "another-key").broken
    assert "refused the sign-in" in line


def test_missing_credentials_are_reported(doctor: Doctor, webui: StandIn) -> None:
    [line] = doctor("--open-webui", webui.url).broken
    assert "Say who signs in" in line


def set_version(function: dict[str, Any], version: str) -> None:
    function["content"] = re.sub(r"(?m)^version: .*$", f"version: {version}", function["content"])


@pytest.mark.parametrize("subject", ["pipe", "function for approvals"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda functions, name: functions.pop(name), "there is no function with the id 'callboard"),
        (lambda functions, name: functions[name].update(is_active=False), "it is not active"),
        (lambda functions, name: functions[name].update(content="class Pipe:\n    pass\n"), "is not Callboard's"),
        (lambda functions, name: set_version(functions[name], "0.0.9"), "version 0.0.9 is older than this server"),
        (lambda functions, name: set_version(functions[name], "99.10.0"), "version 99.10.0 is newer than this server"),
    ],
)
def test_a_missing_inactive_or_other_function_is_reported(
    examine: Any, webui: StandIn, change: Callable[[dict[str, Any], str], None], words: str, subject: str
) -> None:
    change(webui.functions, "callboard" if subject == "pipe" else "callboard_approvals")
    [line] = examine().broken
    assert line.startswith(f"✗ {subject}: ")
    assert words in line
    assert "→" in line


def test_a_function_for_approvals_that_is_not_global_is_reported(examine: Any, webui: StandIn) -> None:
    webui.functions["callboard_approvals"]["is_global"] = False
    [line] = examine().broken
    assert "it is not active for all models → turn it on for all models under Functions" in line


def test_a_server_that_open_webui_cannot_reach_is_reported(examine: Any, webui: StandIn) -> None:
    webui.server_reachable = False
    [line] = examine().broken
    assert f"it does not reach this server; its pipe reports: {stand_in.UNREACHABLE} → start the server" in line
    assert f"callboard install-pipe --url {webui.url} --callboard-url http://127.0.0.1:8701" in line


def test_a_pipe_without_models_is_reported(examine: Any, webui: StandIn) -> None:
    webui.functions_on = False
    [line] = examine().broken
    assert "lists no model of it" in line
