"""The doctor's check of Open WebUI: the pipe's version, and whether Open WebUI reaches this server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard._version import __version__
from tests.cli.conftest import Diagnosis, Doctor, add_functions
from tests.scripts import stand_in
from tests.scripts.stand_in import ADMIN, API_KEY, PASSWORD, StandIn

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
    found = examine()
    assert [*found.of("Open WebUI"), *found.of("pipe")] == [
        f"✓ Open WebUI: version 0.12.4 answers at {webui.url}",
        "✓ Open WebUI: it reaches the server, and lists demo",
        f"✓ pipe: version {__version__}, the same as this server",
    ]
    assert found.of("function for approvals") == [
        f"✓ function for approvals: version {__version__}, the same as this server"
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
    assert "✗ pipe: the function with this id is not Callboard's pipe → set the pipe's id with --id" in examine().broken


def test_an_inactive_pipe_is_reported(examine: Any, webui: StandIn) -> None:
    webui.functions["callboard"]["is_active"] = False
    [line] = examine().broken
    assert "turned off there → turn it on under Functions" in line


@pytest.mark.parametrize(("version", "words"), [("0.0.9", "is older than"), ("99.10.0", "is newer than")])
def test_a_pipe_of_another_version_is_reported(examine: Any, webui: StandIn, version: str, words: str) -> None:
    pipe = webui.functions["callboard"]
    pipe["content"] = re.sub(r"(?m)^version: .*$", f"version: {version}", pipe["content"])
    [line] = examine().broken
    assert f"✗ pipe: version {version} {words} this server, {__version__} → " in line


def test_a_server_that_open_webui_cannot_reach_is_reported(examine: Any, webui: StandIn) -> None:
    webui.server_reachable = False
    [line] = examine().broken
    assert f"it does not reach this server; its pipe reports: {stand_in.UNREACHABLE} → start the server" in line
    assert f"callboard install-pipe --url {webui.url} --callboard-url http://127.0.0.1:8701" in line


def test_a_pipe_without_models_is_reported(examine: Any, webui: StandIn) -> None:
    webui.functions_on = False
    [line] = examine().broken
    assert "lists no model of it" in line


def test_a_server_with_other_agents_is_reported(examine: Any, webui: StandIn) -> None:
    webui.agents = {"demo": "Demo", "stranger": "Stranger"}
    [line] = examine().broken
    assert "it uses a server whose agents differ from this server's: stranger → restart this server" in line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (None, "there is no function with the id 'callboard_approvals'"),
        ({"is_active": False}, "not active for all models"),
        ({"is_global": False}, "not active for all models"),
        ({"content": '"""\nversion: 0.0.1\n"""\n'}, "0.0.1 is older than this server"),
    ],
)
def test_a_missing_inactive_or_old_function_for_approvals_is_reported(
    examine: Any, webui: StandIn, change: dict[str, Any] | None, words: str
) -> None:
    if change is None:
        del webui.functions["callboard_approvals"]
    else:
        webui.functions["callboard_approvals"].update(change)
    [line] = examine().of("function for approvals")
    assert line.startswith("✗")
    assert words in line


def test_an_open_webui_without_cards_that_wait_needs_no_function_for_approvals(examine: Any, webui: StandIn) -> None:
    webui.version = "0.11.4"
    assert examine().of("function for approvals") == []
