"""The files that keep Callboard running: image, compose file, unit. Checked as far as no engine is needed."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import callboard
import openwebui
from callboard._cli.serve import SHUTDOWN_SECONDS
from callboard._keys import make_api_key
from callboard.runs.run import CANCEL_PATIENCE_SECONDS
from callboard.settings import Settings, unknown_settings
from callboard_protocol import Done
from callboard_protocol.events import TERMINAL
from tests import processes
from tests.processes import COMMAND
from tests.runs.promises import check, read
from tests.scripts import stand_in

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
UNIT = (ROOT / "deploy" / "callboard.service").read_text()
MUST_BE_SET = {
    "OPEN_WEBUI_SECRET_KEY": "a-long-random-string",
    "OPEN_WEBUI_EMAIL": stand_in.ADMIN,
    "OPEN_WEBUI_PASSWORD": stand_in.PASSWORD,
}
STOPPING_SECONDS = Settings.model_fields["drain_seconds"].default + CANCEL_PATIENCE_SECONDS + SHUTDOWN_SECONDS
MOST_EXPOSURE_TENTHS = 20
"""On systemd's scale of exposure from 0 to 10; a unit without security options has 9.6."""


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


ONE = Path("compose.yaml")
SEVERAL = Path("deploy") / "several-servers"


def compose(folder: Path, variables: dict[str, str], *files: Path) -> subprocess.CompletedProcess[str]:
    """Return the configuration that compose reads from the files, with these variables as its only `.env`."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return run("docker-compose", *(f"--file={file}" for file in files), "config", cwd=folder)


def compose_services(folder: Path, variables: dict[str, str], *files: Path) -> dict[str, Any]:
    ended = compose(folder, variables, *(files or (ONE,)))
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = yaml.safe_load(ended.stdout)["services"]
    return found


def several_services(folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    return compose_services(folder, variables, ONE, SEVERAL / "compose.yaml")


@pytest.mark.needs("docker-compose")
@pytest.mark.parametrize("missing", MUST_BE_SET)
def test_compose_says_what_is_not_filled_in(tmp_path: Path, missing: str) -> None:
    ended = compose(tmp_path, example() | {**MUST_BE_SET, missing: ""}, ONE)
    assert ended.returncode != 0
    assert missing in ended.stderr
    assert "set it in .env" in ended.stderr


@pytest.mark.needs("docker-compose")
def test_the_example_names_no_setting_that_there_is_not_and_none_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert unknown_settings(example()) == []
    services = compose_services(tmp_path, example() | MUST_BE_SET)
    assert services["open-webui"]["image"] == f"ghcr.io/open-webui/open-webui:v{openwebui.VERSION}"
    for name, value in services["callboard"]["environment"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CALLBOARD_DATA_DIR", str(tmp_path))
    make_api_key(tmp_path)
    assert Settings().host == "0.0.0.0"


@pytest.mark.needs("docker-compose")
@pytest.mark.parametrize("given", ["", "a-key-of-ones-own"])
def test_server_and_pipe_have_the_key_that_compose_makes_or_env_sets(tmp_path: Path, given: str) -> None:
    services = compose_services(tmp_path, example() | MUST_BE_SET | {"CALLBOARD_API_KEY": given})
    data = tmp_path / "data"
    made = run(*COMMAND, *services["key"]["command"], env=moved(services["key"]["environment"], {"/data": str(data)}))
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    valves = install(services["pipe"], data)
    key = given or (data / "api_key").read_text().strip()
    assert valves == {"CALLBOARD_URL": "http://callboard:8700", "CALLBOARD_API_KEY": key}
    settings = {
        name.removeprefix("CALLBOARD_"): value
        for name, value in services["callboard"]["environment"].items()
        if name.startswith("CALLBOARD_") and name not in ("CALLBOARD_DATA_DIR", "CALLBOARD_AGENTS", "CALLBOARD_PORT")
    }
    with processes.serving(data, **settings) as (url, _):
        with httpx.Client(base_url=url.replace("0.0.0.0", "127.0.0.1")) as client:
            as_open_webui_calls = {"Host": "callboard:8700", "Authorization": f"Bearer {valves['CALLBOARD_API_KEY']}"}
            assert client.get("/v1/models", headers=as_open_webui_calls).status_code == 200
            assert client.get("/v1/models", headers={"Host": "callboard:8700"}).status_code == 401
            assert client.get("/v1/models", headers=as_open_webui_calls | {"Host": "other:8700"}).status_code == 421


@pytest.mark.needs("docker-compose")
def test_no_service_has_a_secret_that_it_does_not_need_or_on_its_command_line_or_more_rights_than_it_needs(
    tmp_path: Path,
) -> None:
    secrets = {**MUST_BE_SET, "CALLBOARD_API_KEY": "a-key-of-ones-own", "POSTGRES_PASSWORD": "a-long-one"}
    services = several_services(tmp_path, example() | secrets)
    for name, service in services.items():
        words = str([service.get(part) for part in ("command", "entrypoint", "healthcheck")])
        assert not [secret for secret in secrets.values() if secret in words], name
    given = set(services["callboard"]["environment"].values())
    assert not given & {MUST_BE_SET["OPEN_WEBUI_SECRET_KEY"], MUST_BE_SET["OPEN_WEBUI_PASSWORD"]}
    [port] = services["open-webui"]["ports"]
    assert "127.0.0.1" in str(port)
    ours = [service for service in services.values() if service["image"] == "callboard"]
    assert len(ours) == 4
    for service in ours:
        assert (service["read_only"], set(service["tmpfs"]), service["cap_drop"]) == (True, {"/tmp"}, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"]
        assert service["pids_limit"]
    assert re.search(r"^USER [1-9]\d*$", DOCKERFILE, re.MULTILINE), "the image runs as root"


def moved(environment: dict[str, str], places: dict[str, str]) -> dict[str, str]:
    """Return the environment of the container with paths of this machine, and with Callboard's code importable."""
    return {name: places.get(value, value) for name, value in environment.items()} | {
        "PYTHONPATH": os.pathsep.join(sys.path)
    }


def install(service: dict[str, Any], data: Path) -> dict[str, str]:
    """Run the pipe's service, and return the valves that it sets."""
    with stand_in.serving() as webui:
        command = [word.replace("http://open-webui:8080", webui.url) for word in service["command"]]
        ended = run(*COMMAND, *command, env=moved(service["environment"], {"/data": str(data)}))
    assert ended.returncode == 0, ended.stderr
    assert webui.functions["callboard"]["is_active"]
    return webui.valves["callboard"]


def copies() -> list[str]:
    """The arguments of each COPY."""
    return re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)


def test_the_sdist_has_no_tests_and_all_that_the_image_and_the_wheel_need(tmp_path: Path) -> None:
    ended = run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path)
    assert ended.returncode == 0, ended.stderr
    with tarfile.open(tmp_path / f"callboard-{callboard.__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    sdist = tmp_path / f"callboard-{callboard.__version__}"
    assert (sdist / "SECURITY.md").is_file()
    assert not (sdist / "tests").exists()
    source = tmp_path / "src"
    source.mkdir()
    for line in takewhile(lambda line: "--from" not in line, copies()):
        *names, _ = line.split()
        for name in names:
            copy = shutil.copytree if (sdist / name).is_dir() else shutil.copy
            (source / name).parent.mkdir(exist_ok=True)
            copy(sdist / name, source / name)
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path)
    ended = run(sys.executable, "-m", "pip", *build, source)
    assert ended.returncode == 0, ended.stderr
    [wheel] = tmp_path.glob("callboard-*.whl")
    content = zipfile.ZipFile(wheel)
    names = content.namelist()
    assert {"callboard/_cli/__init__.py", "callboard_protocol/events.py"} <= set(names)
    assert any(name.startswith("callboard/storage/sql/migrations/versions/0100") for name in names)
    # The inspector's pages, with all that a browser loads for them.
    pages = [file for part in ("templates", "assets") for file in (ROOT / "server/callboard/_inspect" / part).iterdir()]
    assert len(pages) > 10
    assert {str(file.relative_to(ROOT / "server")) for file in pages} <= set(names)
    metadata = content.read(f"callboard-{callboard.__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {callboard.__version__}\n" in metadata
    assert "\nLicense-Expression: MIT\n" in metadata


def test_the_health_check_is_well_with_a_server_and_not_without(tmp_path: Path) -> None:
    found = re.search(r"^HEALTHCHECK .* CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    assert found
    command = [sys.executable, *json.loads(found[1])[1:]]
    with processes.serving(tmp_path) as (url, _):
        environment = os.environ | {"CALLBOARD_PORT": url.rpartition(":")[2], "http_proxy": "http://127.0.0.1:9"}
        assert run(*command, env=environment).returncode == 0
    assert run(*command, env=environment).returncode != 0


@pytest.mark.needs("systemd")
def test_systemd_takes_the_unit_and_finds_it_locked_down(tmp_path: Path) -> None:
    # systemd looks for the program itself: here it lies elsewhere.
    unit = tmp_path / "callboard.service"
    unit.write_text(UNIT.replace("/opt/callboard/bin/", f"{Path(sys.executable).parent}/"))
    verified = run("systemd-analyze", "verify", unit)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    judged = run("systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSURE_TENTHS}", unit)
    assert judged.returncode == 0, judged.stdout


# --------------------------------------------------------------------------------------------------- several servers


@pytest.mark.needs("docker-compose")
def test_compose_reads_two_servers_that_share_a_database_and_a_balancer_before_them(tmp_path: Path) -> None:
    services = several_services(tmp_path, example() | MUST_BE_SET | {"POSTGRES_PASSWORD": "a-long-one"})
    others = {"key", "postgresql", "balancer", "open-webui", "pipe"}
    assert set(services) == {"callboard", "callboard-two"} | others
    one = services["callboard"]
    two = services["callboard-two"]
    assert one["environment"] == two["environment"]
    assert one["environment"]["CALLBOARD_DATABASE_URL"].endswith("callboard:a-long-one@postgresql/callboard")
    assert one["environment"]["POSTGRES_PASSWORD"] == "", "whoever has it in an address needs it nowhere else"
    assert "--callboard-url=http://balancer:8700" in services["pipe"]["command"]
    assert "balancer" in one["environment"]["CALLBOARD_TRUSTED_HOSTS"].split(",")
    for service in (one, two):
        assert int(service["stop_grace_period"].removesuffix("s").replace("1m0", "60")) > STOPPING_SECONDS


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def nginx(folder: Path, port: int, servers: dict[str, int]) -> Iterator[str]:
    """nginx with the balancer's settings; its address."""
    settings = (ROOT / SEVERAL / "nginx.conf").read_text().replace("listen 8700;", f"listen 127.0.0.1:{port};")
    for name, at in servers.items():
        settings = settings.replace(f"server {name}:8700", f"server 127.0.0.1:{at}")
    (folder / "balancer.conf").write_text(settings)
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\ninclude {folder}/balancer.conf; }}\n"
    )
    command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    tested = run(*command, "-t")
    assert tested.returncode == 0, tested.stderr
    process = subprocess.Popen(command)
    try:
        with httpx.Client() as client:
            while True:
                try:
                    client.get(f"http://127.0.0.1:{port}/ready")
                except httpx.ConnectError:
                    assert process.poll() is None
                else:
                    break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.needs("nginx")
@pytest.mark.timeout(120)
def test_behind_nginx_an_answer_goes_on_at_the_other_server_when_its_own_is_stopped(tmp_path: Path) -> None:
    port, first, second = free_ports(3)
    data = tmp_path / "data"
    options = {"DRAIN_SECONDS": "0", "TRUSTED_HOSTS": "balancer"}
    body = {"agent": "demo", "run_id": "r", "chat_id": "c", "messages": [{"role": "user", "content": "slow"}]}
    with ExitStack() as stack:
        _, one = stack.enter_context(processes.serving(data, PORT=str(first), **options))
        # nginx is configured for both; the other one does not run yet.
        url = stack.enter_context(nginx(tmp_path, port, {"callboard": first, "callboard-two": second}))
        client = stack.enter_context(httpx.Client(base_url=url, headers={"Host": "balancer:8700"}, timeout=60))
        with client.stream("POST", "/v1/runs", json=body) as response:
            assert response.status_code == 200
            chunks = response.iter_bytes()
            seen = b""
            # While it runs: nginx keeps nothing back.
            while b"tool_call_start" not in seen:
                seen += next(chunks)
            one.send_signal(signal.SIGTERM)
            seen += b"".join(chunks)
        stack.enter_context(processes.serving(data, PORT=str(second), **options))
        assert not isinstance(read(seen)[-1][1], TERMINAL)
        one.wait()
        after = {"after": read(seen)[-1][0]}
        # It retries an unreachable server after a while, and a resuming client tries for longer than that.
        while (rest := client.get("/v1/runs/r/events", params=after)).status_code == 502:
            pass
        assert rest.status_code == 200
        check(read(seen + rest.content))
        assert isinstance(read(rest.content)[-1][1], Done)
        assert client.post("/v1/runs", json=body | {"run_id": "another", "chat_id": "d"}).status_code == 200
