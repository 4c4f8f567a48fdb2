"""The doctor's check of Open WebUI: the pipe's version, its valves, and whether Open WebUI reaches this server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard._named_keys import add_named_key, remove_named_key
from callboard._version import __version__
from tests.cli.conftest import Diagnosis, Doctor
from tests.scripts import stand_in
from tests.scripts.stand_in import ADMIN, API_KEY, PASSWORD, StandIn

PIPE = (Path(__file__).parents[2] / "pipe" / "callboard_pipe.py").read_text()
KEY = "the-servers-key"


@pytest.fixture
def webui() -> Iterator[StandIn]:
    with stand_in.serving() as served:
        served.functions["callboard"] = {"id": "callboard", "type": "pipe", "content": PIPE, "is_active": True}
        served.valves["callboard"] = {"CALLBOARD_URL": "http://127.0.0.1:8701", "CALLBOARD_API_KEY": KEY}
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


def about_pipe(found: Diagnosis) -> list[str]:
    subjects = ("Open WebUI", "pipe", "valve CALLBOARD_URL", "valve CALLBOARD_API_KEY")
    return [line for subject in subjects for line in found.of(subject)]


def test_a_correct_pipe_is_reported_and_nothing_is_changed(examine: Any, webui: StandIn) -> None:
    found = examine()
    assert about_pipe(found) == [
        f"✓ Open WebUI: version 0.12.4 answers at {webui.url}",
        "✓ Open WebUI: it reaches the server, and lists demo",
        f"✓ pipe: version {__version__}, as this server",
        "✓ valve CALLBOARD_URL: http://127.0.0.1:8701",
        "✓ valve CALLBOARD_API_KEY: set, to this server's key",
    ]
    assert [asked for asked in webui.calls if asked.startswith("POST")] == ["POST /api/v1/auths/signin"]


def test_an_api_key_signs_in_too(examine: Any) -> None:
    assert examine("--api-key", API_KEY).exit_code == 0


def test_credentials_of_the_env_file_are_used(doctor: Doctor, webui: StandIn, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"OPEN_WEBUI_EMAIL={ADMIN}\nOPEN_WEBUI_PASSWORD={PASSWORD}\n")
    assert doctor("--open-webui", webui.url, PORT="8701", API_KEY=KEY).exit_code == 0


def test_an_unreachable_open_webui_is_reported(doctor: Doctor) -> None:
    [line] = doctor("--open-webui", "http://127.0.0.1:9", "--api-key", "k").broken
    assert "No Open WebUI answers at http://127.0.0.1:9" in line


@pytest.mark.parametrize("url", ["localhost:3000", "http://["])
def test_an_invalid_address_is_reported(doctor: Doctor, url: str) -> None:
    [line] = doctor("--open-webui", url, "--api-key", "k").broken
    assert "Open WebUI" in line


def test_a_wrong_password_is_reported(examine: Any) -> None:
    [line] = examine("--password", "another-key").broken
    assert "refused the sign-in" in line


def test_missing_credentials_are_reported(doctor: Doctor, webui: StandIn) -> None:
    [line] = doctor("--open-webui", webui.url).broken
    assert "Say who signs in" in line


def test_a_missing_pipe_is_reported_with_the_command_that_installs_it(examine: Any, webui: StandIn) -> None:
    webui.functions.clear()
    assert examine().broken == [
        f"✗ pipe: there is no pipe with the id 'callboard' → callboard install-pipe --url {webui.url}"
    ]


def test_another_function_with_the_id_is_reported(examine: Any, webui: StandIn) -> None:
    webui.functions["callboard"]["content"] = "class Pipe:\n    pass\n"
    assert "✗ pipe: the function of that id is not Callboard's pipe → name the pipe's with --id" in examine().broken


def test_an_inactive_pipe_is_reported(examine: Any, webui: StandIn) -> None:
    webui.functions["callboard"]["is_active"] = False
    [line] = examine().broken
    assert "turned off there → turn it on under Functions" in line


@pytest.mark.parametrize(("version", "words"), [("0.0.9", "is older than"), ("99.10.0", "is newer than")])
def test_a_pipe_of_another_version_is_reported(examine: Any, webui: StandIn, version: str, words: str) -> None:
    webui.functions["callboard"]["content"] = re.sub(r"(?m)^version: .*$", f"version: {version}", PIPE)
    [line] = examine().broken
    assert f"✗ pipe: version {version} {words} this server, {__version__} → " in line


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9999", "this server listens on 8701 → set it to http://127.0.0.1:8701"),
        ("127.0.0.1:8701", "it is not an address → set it to http://127.0.0.1:8701"),
        ("http://a:b:c", "it is not an address"),
    ],
)
def test_a_wrong_address_in_the_valve_is_reported(examine: Any, webui: StandIn, url: str, words: str) -> None:
    webui.valves["callboard"]["CALLBOARD_URL"] = url
    [line] = examine().broken
    assert line.startswith("✗ valve CALLBOARD_URL: ")
    assert words in line


def test_the_address_of_another_machine_is_no_fault_and_is_shown_without_its_password(
    examine: Any, webui: StandIn
) -> None:
    webui.valves["callboard"]["CALLBOARD_URL"] = "https://me:another-key@agents.example/x?k=another-key"
    assert examine().of("valve CALLBOARD_URL") == ["✓ valve CALLBOARD_URL: https://agents.example:443"]


@pytest.mark.parametrize(("there", "words"), [("another-key", "not to a key of this server"), ("", "not set, and")])
def test_a_wrong_key_in_the_valve_is_reported_and_not_shown(
    examine: Any, webui: StandIn, there: str, words: str
) -> None:
    webui.valves["callboard"]["CALLBOARD_API_KEY"] = there
    [line] = examine().broken
    assert line.startswith("✗ valve CALLBOARD_API_KEY: ")
    assert words in line


def test_valves_that_were_never_stored_are_the_pipes_defaults(doctor: Doctor, webui: StandIn) -> None:
    webui.valves.clear()
    found = doctor("--open-webui", webui.url, "--api-key", API_KEY)
    assert found.broken == []
    assert found.of("valve CALLBOARD_API_KEY") == ["✓ valve CALLBOARD_API_KEY: not set, and this server asks for none"]


def test_the_key_that_the_server_made_is_its_key(doctor: Doctor, webui: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "data" / "api_key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    found = doctor("--open-webui", webui.url, "--api-key", API_KEY, PORT="8701")
    assert found.of("valve CALLBOARD_API_KEY") == ["✓ valve CALLBOARD_API_KEY: set, to this server's key"]


def test_a_server_that_open_webui_cannot_reach_is_reported(examine: Any, webui: StandIn) -> None:
    webui.server_reachable = False
    [line] = examine().broken
    assert f"it does not reach this server; its pipe says: {stand_in.UNREACHABLE} → start the server" in line


def test_a_pipe_without_models_is_reported(examine: Any, webui: StandIn) -> None:
    webui.functions_on = False
    [line] = examine().broken
    assert "lists no model of it" in line


def test_a_server_with_other_agents_is_another_server(examine: Any, webui: StandIn) -> None:
    webui.agents = {"demo": "Demo", "stranger": "Stranger"}
    [line] = examine().broken
    assert "agents are not all of this one: stranger → restart this server" in line


def test_a_named_key_is_recognised(examine: Any, webui: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "kept" / "api_keys"
    webui.valves["callboard"]["CALLBOARD_API_KEY"] = add_named_key(file, "open-webui")
    line = "valve CALLBOARD_API_KEY: set, to the key 'open-webui'"
    assert f"✓ {line}" in examine(API_KEYS_FILE=str(file)).lines
    assert f"✓ {line}" in examine(API_KEYS_FILE=str(file), API_KEY="").lines
    remove_named_key(file, "open-webui")
    [lost, *_] = examine(API_KEYS_FILE=str(file)).of("valve CALLBOARD_API_KEY")
    assert "not to a key of this server" in lost
