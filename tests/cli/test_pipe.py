"""The wheel contains the demo agent and the pipe, which two commands print and install."""

import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.processes import COMMAND, address, environment, run
from tests.scripts import stand_in
from tests.scripts.stand_in import ADMIN, PASSWORD

ROOT = Path(__file__).parents[2]
PIPE = ROOT / "pipe" / "callboard_pipe.py"
EVENTS = PIPE.with_name("callboard_events.py")
FILTER = PIPE.with_name("callboard_filter.py")
SIGN_IN = ("--email", ADMIN, "--password", PASSWORD)


@pytest.mark.parametrize(("options", "file"), [((), PIPE), (("--events",), EVENTS), (("--filter",), FILTER)])
def test_the_functions_are_printed_byte_for_byte(tmp_path: Path, options: tuple[str, ...], file: Path) -> None:
    command = [*COMMAND, "pipe", *options]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=120)
    assert ended.stdout == file.read_bytes()
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_closed_output_pipe_is_no_error(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "pipe"], cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_a_wheel_installs_the_functions_and_serves_the_demo_without_an_agents_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    [wheel] = tmp_path.glob("callboard-*.whl")
    packages = tmp_path / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    folder = tmp_path / "work"
    folder.mkdir()
    variables = environment(folder) | {"PYTHONPATH": str(packages)}
    # -P: files in the working directory cannot be imported.
    callboard = [sys.executable, "-P", *COMMAND[1:]]
    with stand_in.serving() as webui:
        installing = [*callboard, "install-pipe", "--url", webui.url, *SIGN_IN]
        ended = subprocess.run(installing, cwd=folder, env=variables, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    for name, file in (("callboard", PIPE), ("callboard_events", EVENTS), ("callboard_approvals", FILTER)):
        assert webui.functions[name]["content"] == file.read_text()
    asked = {"agent": "demo", "user": {"id": "u"}, "messages": [{"role": "user", "content": "a page"}]}
    key = {"Authorization": f"Bearer {webui.valves['callboard']['CALLBOARD_API_KEY']}"}
    with subprocess.Popen(
        [*callboard, "serve"], cwd=folder, env=variables, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            answer = httpx.post(f"{address(server.stderr)}/v1/runs", json=asked, headers=key, timeout=120)
        finally:
            server.kill()
    assert '"tool_name":"show_clock"' in answer.text


# ------------------------------------------------------------------------------------------------ install-pipe


def install(folder: Path, url: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "install-pipe", "--url", url, *SIGN_IN, *arguments, **settings)


def test_the_servers_own_address_and_key_are_put_into_the_valves(tmp_path: Path) -> None:
    with stand_in.serving() as webui:
        ended = install(tmp_path, webui.url, HOST="0.0.0.0", PORT="8711", API_KEY="the-servers-key")
    assert ended.returncode == 0, ended.stderr
    assert webui.functions["callboard"]["is_active"]
    assert webui.valves["callboard"] == {
        "CALLBOARD_URL": "http://127.0.0.1:8711",
        "CALLBOARD_API_KEY": "the-servers-key",
    }
    assert "the-servers-key" not in ended.stdout + ended.stderr
    assert not (tmp_path / "api_key").exists()


def test_a_missing_key_of_the_server_is_made_once_and_announced(tmp_path: Path) -> None:
    with stand_in.serving() as webui:
        ended = install(tmp_path, webui.url)
        made = (tmp_path / "api_key").read_text().strip()
        assert webui.valves["callboard"]["CALLBOARD_API_KEY"] == made
        assert ended.stderr == (
            f"Made a key for the server, in {tmp_path / 'api_key'}: restart a server that is running, "
            "so that it requires the key.\n"
        )
        assert made not in ended.stdout
        again = install(tmp_path, webui.url)
    assert again.stderr == ""
    assert webui.valves["callboard"]["CALLBOARD_API_KEY"] == made


def test_options_come_before_settings_and_make_no_key_and_an_address_in_the_valve_is_kept(tmp_path: Path) -> None:
    with stand_in.serving() as webui:
        options = ("--callboard-url", "http://host.docker.internal:8700", "--callboard-api-key", "given")
        install(tmp_path, webui.url, *options, "--valve", "RESULT_CHARS=5", PORT="8711")
        kept = {"CALLBOARD_URL": "http://host.docker.internal:8700", "RESULT_CHARS": "5"}
        assert webui.valves["callboard"] == {**kept, "CALLBOARD_API_KEY": "given"}
        assert not (tmp_path / "api_key").exists()
        install(tmp_path, webui.url, PORT="8711", API_KEY="new")
    assert webui.valves["callboard"] == {**kept, "CALLBOARD_API_KEY": "new"}


def test_an_installation_that_fails_makes_no_key(tmp_path: Path) -> None:
    with stand_in.serving() as webui:
        ended = run(tmp_path, "install-pipe", "--url", webui.url, "--email", ADMIN, "--password", "wrong")
    assert ended.returncode == 1
    assert ended.stderr.startswith("callboard install-pipe: Open WebUI refused the sign-in")
    assert not (tmp_path / "api_key").exists()


def test_the_script_runs_without_any_package(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "install_pipe.py"
    with stand_in.serving() as webui:
        # -I -S: no packages, no environment of Python's own.
        command = [sys.executable, "-I", "-S", str(script), "--url", webui.url, *SIGN_IN]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert webui.functions["callboard"]["content"] == PIPE.read_text()
    assert "callboard" not in webui.valves
