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
from callboard_protocol import TERMINAL, Done
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


def compose_config(folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Return the configuration that compose reads from the file, with these variables as its only `.env`."""
    shutil.copy(ROOT / "compose.yaml", folder)
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return run("docker-compose", "config", cwd=folder)


def compose_services(folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    ended = compose_config(folder, variables)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = yaml.safe_load(ended.stdout)["services"]
    return found


@pytest.fixture
def services(tmp_path: Path) -> dict[str, Any]:
    return compose_services(tmp_path, example() | MUST_BE_SET)


@pytest.mark.needs("docker-compose")
def test_compose_reads_the_file_once_the_example_is_filled_in(services: dict[str, Any]) -> None:
    assert set(services) == {"key", "callboard", "open-webui", "pipe"}
    assert {service["image"] for service in services.values()} == {
        "callboard",
        f"ghcr.io/open-webui/open-webui:v{openwebui.VERSION}",
    }


@pytest.mark.needs("docker-compose")
@pytest.mark.parametrize("missing", MUST_BE_SET)
def test_compose_says_what_is_not_filled_in(tmp_path: Path, missing: str) -> None:
    ended = compose_config(tmp_path, example() | {**MUST_BE_SET, missing: ""})
    assert ended.returncode != 0
    assert missing in ended.stderr
    assert "set it in .env" in ended.stderr


@pytest.mark.needs("docker-compose")
def test_the_example_names_no_setting_that_there_is_not_and_none_is_wrong(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert unknown_settings(example()) == []
    for name, value in services["callboard"]["environment"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CALLBOARD_DATA_DIR", str(tmp_path))
    make_api_key(tmp_path)
    assert Settings().host == "0.0.0.0"


@pytest.mark.needs("docker-compose")
def test_the_server_is_not_given_open_webuis_secrets(services: dict[str, Any]) -> None:
    given = set(services["callboard"]["environment"].values())
    assert not given & {MUST_BE_SET["OPEN_WEBUI_SECRET_KEY"], MUST_BE_SET["OPEN_WEBUI_PASSWORD"]}


@pytest.mark.needs("docker-compose")
def test_the_key_is_made_in_the_volume_before_the_server_starts_and_the_pipe_reads_it(services: dict[str, Any]) -> None:
    for service in ("callboard", "pipe"):
        assert services[service]["depends_on"]["key"]["condition"] == "service_completed_successfully"
    written = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert written["key"]["volumes"] == ["callboard:/data"]
    assert "callboard:/data" in written["callboard"]["volumes"]
    assert written["pipe"]["volumes"] == ["callboard:/data:ro"]
    assert {services[name]["environment"]["CALLBOARD_DATA_DIR"] for name in ("key", "callboard")} == {"/data"}


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
def test_no_service_has_a_secret_on_its_command_line(tmp_path: Path) -> None:
    secrets = {**MUST_BE_SET, "CALLBOARD_API_KEY": "a-key-of-ones-own", "POSTGRES_PASSWORD": "a-long-one"}
    for name, service in several_services(tmp_path, example() | secrets).items():
        words = str([service.get(part) for part in ("command", "entrypoint", "healthcheck")])
        assert not [secret for secret in secrets.values() if secret in words], name


@pytest.mark.needs("docker-compose")
def test_our_containers_write_to_their_volumes_only_and_have_limits(tmp_path: Path) -> None:
    services = several_services(tmp_path, example() | MUST_BE_SET | {"POSTGRES_PASSWORD": "a-long-one"})
    ours = [service for service in services.values() if service["image"] == "callboard"]
    assert len(ours) == 4
    for service in ours:
        assert (service["read_only"], set(service["tmpfs"]), service["cap_drop"]) == (True, {"/tmp"}, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"]
        assert service["pids_limit"]


@pytest.mark.needs("docker-compose")
def test_open_webui_listens_on_loopback_unless_the_env_file_says_otherwise(tmp_path: Path) -> None:
    for variables in (example(), example() | {"OPEN_WEBUI_PORT": ""}):
        [port] = compose_services(tmp_path, variables | MUST_BE_SET)["open-webui"]["ports"]
        assert "127.0.0.1" in str(port)


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


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    ended = run(Path(sys.executable).parent / "hadolint", "Dockerfile")
    assert ended.returncode == 0, ended.stdout


def test_the_base_image_is_named_by_its_digest() -> None:
    first, *others = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.12-slim-bookworm@sha256:[0-9a-f]{64}", first)
    assert set(others) == {"base"}


def test_the_image_does_not_run_as_root() -> None:
    [user] = re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0


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
    assert len(pages) > 20
    assert {str(file.relative_to(ROOT / "server")) for file in pages} <= set(names)
    metadata = content.read(f"callboard-{callboard.__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {callboard.__version__}\n" in metadata
    assert "\nLicense-Expression: MIT\n" in metadata


@pytest.mark.parametrize("recipe", [DOCKERFILE, UNIT], ids=["image", "unit"])
def test_what_is_deployed_are_the_versions_of_the_lock(recipe: str) -> None:
    installs = re.findall(r"pip install ((?:\\\n|[^\n])+)", recipe)
    locked, ours = (set(re.sub(r"\\\n", " ", line).split()) for line in installs)
    assert {"--no-deps", "--require-hashes", "--requirement"} <= locked
    assert {"--no-deps", "--no-build-isolation", "."} <= ours


def test_what_docker_does_not_send_holds_nothing_that_the_image_needs() -> None:
    sent = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    wanted = {name.rstrip("/") for line in copies() if "--from" not in line for name in line.split()[:-1]}
    assert sorted(sent) == sorted(wanted)


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


@pytest.mark.needs("docker-compose")
def test_both_wait_longer_for_the_server_to_stop_than_it_takes(services: dict[str, Any]) -> None:
    waits = re.search(r"^TimeoutStopSec=(\d+)s$", UNIT, re.MULTILINE)
    assert waits
    for seconds in (waits[1], services["callboard"]["stop_grace_period"].removesuffix("s")):
        assert (
            int(seconds) > Settings.model_fields["drain_seconds"].default + CANCEL_PATIENCE_SECONDS + SHUTDOWN_SECONDS
        )


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_a_workflow_reads_the_code_only_and_keeps_no_token(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    granted = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert granted == ({"publish": {"id-token": "write"}} if path.stem == "release" else {})
    for step in (step for job in workflow["jobs"].values() for step in job["steps"]):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


# --------------------------------------------------------------------------------------------------- several servers

SEVERAL = Path("deploy") / "several-servers"


def compose_several(folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for file in (Path("compose.yaml"), SEVERAL / "compose.yaml"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return run("docker-compose", "-f", "compose.yaml", "-f", SEVERAL / "compose.yaml", "config", cwd=folder)


def several_services(folder: Path, variables: dict[str, str]) -> dict[str, Any]:
    ended = compose_several(folder, variables)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = yaml.safe_load(ended.stdout)["services"]
    return found


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
    assert unknown_settings(one["environment"]) == []
    assert "--callboard-url=http://balancer:8700" in services["pipe"]["command"]
    assert "balancer" in one["environment"]["CALLBOARD_TRUSTED_HOSTS"].split(",")
    for service in (one, two):
        assert int(service["stop_grace_period"].removesuffix("s").replace("1m0", "60")) > STOPPING_SECONDS


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def nginx(folder: Path, port: int, servers: dict[str, int], header_timeout: str = "15s") -> Iterator[str]:
    """nginx with the balancer's settings; its address."""
    settings = (ROOT / SEVERAL / "nginx.conf").read_text().replace("listen 8700;", f"listen 127.0.0.1:{port};")
    assert "client_header_timeout 15s;" in settings
    settings = settings.replace("client_header_timeout 15s;", f"client_header_timeout {header_timeout};")
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


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("said", [b"", b"POST /v1/runs HTTP/1.1\r\nHost: balancer\r\nContent-"])
def test_nginx_ends_a_connection_whose_headers_never_end(tmp_path: Path, said: bytes) -> None:
    port, nobody = free_ports(2)
    with nginx(tmp_path, port, {"callboard": nobody, "callboard-two": nobody}, header_timeout="200ms"):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(said)
            while connection.recv(1000):
                pass
