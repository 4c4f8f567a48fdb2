"""install_pipe installs and updates the pipe, and reports each problem in one line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

import install_pipe
from callboard._keys import make_api_key
from install_pipe import main
from tests.scripts.stand_in import ADMIN, API_KEY, PASSWORD, UNREACHABLE, USER, StandIn

SOURCE = '"""\ntitle: Callboard\n"""\n\n\nclass Pipe:\n    """Callboard\'s."""\n'
SIGN_IN = ["--email", ADMIN, "--password", PASSWORD]


@pytest.fixture
def source(tmp_path: Path) -> str:
    file = tmp_path / "pipe.py"
    file.write_text(SOURCE)
    return str(file)


class Failing:
    """Runs the command line, expects it to fail, and returns the line that it says."""

    def __init__(self, webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.webui = webui
        self.source = source
        self.capsys = capsys

    def __call__(self, *arguments: str) -> str:
        assert main(["--url", self.webui.url, "--file", self.source, *arguments]) == 1
        said = self.capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.startswith("install_pipe: ")
        assert PASSWORD not in said
        assert API_KEY not in said
        return said


@pytest.fixture
def failing(webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]) -> Failing:
    return Failing(webui, source, capsys)


@pytest.fixture
def installing(webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command line, expects it to succeed, and returns its output."""

    def run(*arguments: str) -> str:
        assert main(["--url", webui.url, "--file", source, *SIGN_IN, *arguments]) == 0
        return capsys.readouterr().out

    return run


def test_a_first_installation_creates_the_functions_sets_the_valves_and_activates_them(
    webui: StandIn, installing: Callable[..., str]
) -> None:
    said = installing("--callboard-url", "http://there:8700", "--callboard-api-key", "k", "--valve", "RESULT_CHARS=500")
    files = {"callboard": None, "callboard_events": install_pipe.EVENTS, "callboard_approvals": install_pipe.FILTER}
    assert [*webui.functions] == [*files]
    for name, file in files.items():
        function = webui.functions[name]
        assert (function["is_active"], function["content"]) == (True, file.read_text() if file else SOURCE)
    assert [webui.functions[name]["type"] for name in files] == ["pipe", "event", "filter"]
    assert webui.functions["callboard_approvals"]["is_global"]
    assert webui.valves["callboard"] == {
        "CALLBOARD_URL": "http://there:8700",
        "CALLBOARD_API_KEY": "k",
        "RESULT_CHARS": "500",
    }
    assert "Installed the pipe in Open WebUI 0.12.4" in said
    assert "callboard.demo" in said
    assert "other.model" not in said


def test_a_second_installation_updates_the_sources_and_keeps_names_and_what_was_switched_off(
    webui: StandIn, installing: Callable[..., str], source: str
) -> None:
    installing()
    pipe, events, approvals = webui.functions.values()
    pipe.update(name="Our agents", is_active=False)
    events.update(is_active=False, content="# Callboard's, of an earlier version")
    Path(source).write_text(SOURCE + "# newer\n")
    installing()
    assert pipe["content"].endswith("# newer\n")
    # The pipe is installed to be used.
    assert (pipe["name"], pipe["is_active"]) == ("Our agents", True)
    assert (events["content"], events["is_active"]) == (install_pipe.EVENTS.read_text(), False)
    assert (approvals["is_active"], approvals["is_global"]) == (True, True)


def test_valves_changed_in_open_webui_are_kept_unless_an_option_sets_them(
    webui: StandIn, installing: Callable[..., str]
) -> None:
    installing("--callboard-url", "http://first:8700")
    webui.valves["callboard"] |= {"RESULT_CHARS": 77, "CALLBOARD_URL": "http://changed:8700"}
    installing("--callboard-api-key", "k")
    assert webui.valves["callboard"] == {
        "RESULT_CHARS": 77,
        "CALLBOARD_URL": "http://changed:8700",
        "CALLBOARD_API_KEY": "k",
    }
    installing("--callboard-url", "http://given:8700", "--valve", "RENDERING=native")
    assert webui.valves["callboard"]["CALLBOARD_URL"] == "http://given:8700"
    assert webui.valves["callboard"]["RENDERING"] == "native"


def test_the_servers_key_is_read_from_its_file_unless_it_is_given(
    webui: StandIn, installing: Callable[..., str], tmp_path: Path
) -> None:
    key = make_api_key(tmp_path)
    for given, expected in (([], key), (["--callboard-api-key="], key), (["--callboard-api-key=k"], "k")):
        installing("--callboard-api-key-file", str(tmp_path / "api_key"), *given)
        assert webui.valves["callboard"]["CALLBOARD_API_KEY"] == expected


def test_credentials_of_the_environment_are_the_default_and_those_of_the_command_line_come_first(
    webui: StandIn, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPEN_WEBUI_URL", webui.url)
    monkeypatch.setenv("OPEN_WEBUI_EMAIL", ADMIN)
    monkeypatch.setenv("OPEN_WEBUI_PASSWORD", PASSWORD)
    assert main(["--file", source]) == 0
    monkeypatch.setenv("OPEN_WEBUI_API_KEY", "sk-of-another")
    assert main(["--file", source, *SIGN_IN]) == 0


def test_an_open_webui_that_is_too_old_is_refused(webui: StandIn, failing: Failing) -> None:
    webui.version = "0.11.3"
    assert "Callboard needs Open WebUI 0.11.4 or later; this is 0.11.3." in failing(*SIGN_IN)
    assert not webui.functions


def test_another_function_with_the_id_for_events_is_not_overwritten(
    webui: StandIn, installing: Callable[..., str]
) -> None:
    theirs = {"id": "callboard_events", "name": "Theirs", "content": "# other", "type": "event", "is_active": True}
    webui.functions["callboard_events"] = theirs
    assert "belongs to another function there, 'Theirs'" in installing()
    assert webui.functions["callboard_events"]["content"] == "# other"


def test_another_function_with_the_id_is_not_overwritten(webui: StandIn, failing: Failing) -> None:
    theirs = {"id": "callboard", "name": "Theirs", "content": "class Filter: ...", "type": "filter", "is_active": True}
    webui.functions["callboard"] = dict(theirs)
    assert "belongs to another function there, 'Theirs'" in failing(*SIGN_IN)
    assert webui.functions["callboard"] == theirs


FAULTS: dict[str, tuple[dict[str, object], list[str], str]] = {
    "a wrong password": ({}, ["--email", ADMIN, "--password", "wrong"], f"refused the sign-in of {ADMIN}"),
    "no admin": ({}, ["--email", USER, "--password", PASSWORD], "is not an admin there (role 'user')"),
    "a wrong API key": ({}, ["--api-key", "sk-wrong"], "does not accept this API key"),
    "no API keys": ({"api_keys_on": False}, ["--api-key", API_KEY], "Use of API key is not enabled"),
    "no passwords": ({"passwords_on": False}, SIGN_IN, "use an API key"),
    "too many sign-ins": ({"rate_limited": True}, SIGN_IN, "wait a few minutes"),
    "a second factor": ({"second_factor": True}, SIGN_IN, "second factor"),
    "a source that does not load": (
        {"source_error": "No module named 'x'\nin line 3"},
        SIGN_IN,
        "could not create the pipe (400): No module named 'x' in line 3",
    ),
    "no functions": ({"functions_on": False}, SIGN_IN, "lists no model of it"),
    "no server": ({"server_reachable": False}, SIGN_IN, f"The pipe is installed, but it reports {UNREACHABLE!r}"),
    "an unknown valve": ({}, [*SIGN_IN, "--valve", "COLOUR=red"], "no valve 'COLOUR'; it has CALLBOARD_URL"),
    "a valve without a value": ({}, [*SIGN_IN, "--valve", "COLOUR"], "--valve takes NAME=VALUE"),
    "no source": ({}, [*SIGN_IN, "--file", "/nowhere/pipe.py"], "The source of the pipe cannot be read"),
    "no key file": (
        {},
        [*SIGN_IN, "--callboard-api-key-file", "/nowhere/api_key"],
        "The server's key cannot be read",
    ),
    "no credentials": ({}, [], "--email"),
    "no terminal": ({}, ["--email", ADMIN], "no terminal to ask"),
    "no scheme": ({}, [*SIGN_IN, "--url", "localhost:8080"], "must begin with http:// or https://"),
}


@pytest.mark.parametrize(("state", "arguments", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_every_fault_is_one_line_that_says_what_to_do(
    webui: StandIn,
    failing: Failing,
    monkeypatch: pytest.MonkeyPatch,
    state: dict[str, object],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    for name, value in state.items():
        setattr(webui, name, value)
    assert said in failing(*arguments)


def test_no_open_webui_at_the_address_is_one_line(failing: Failing) -> None:
    class Files(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Files) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        assert "not an Open WebUI" in failing(*SIGN_IN, "--url", url)
        server.shutdown()
        thread.join()
    assert f"No Open WebUI answers at {url}" in failing(*SIGN_IN, "--url", url)


# --- Who sees the agents.


def grants(webui: StandIn, agent: str = "demo") -> list[tuple[str, str, str]]:
    """Who may use the agent, as Open WebUI keeps it."""
    entry = webui.entries[f"callboard.{agent}"]
    return [(one["principal_type"], one["principal_id"], one["permission"]) for one in entry["access_grants"]]


EVERYONE = ("user", "*", "read")
FAMILY = ("group", "id-of-Family", "read")


@pytest.mark.parametrize(
    ("access", "expected", "audience"),
    [("everyone", [EVERYONE], "everyone"), ("group:Family", [FAMILY], "the group Family")],
)
def test_agents_are_shown_to_whom_the_flag_says_which_is_checked_as_a_user_who_is_gone_afterwards(
    webui: StandIn,
    installing: Callable[..., str],
    access: str,
    expected: list[tuple[str, str, str]],
    audience: str,
) -> None:
    said = installing("--access", access)
    assert grants(webui) == expected
    assert f"Who sees them: {audience} (--access" in said
    assert "a new user with the role 'user' sees Demo, and Demo answers" in said
    assert "POST /api/chat/completions" in webui.calls
    assert webui.users == {}


def test_without_the_option_and_a_terminal_only_admins_see_agents_and_no_user_is_made(
    webui: StandIn, installing: Callable[..., str]
) -> None:
    assert "Who sees them: only admins (--access everyone, admins or group:NAME changes it).\n" in installing()
    assert webui.entries == {}
    assert "Who sees them: only admins (--access" in installing("--access", "admins")
    assert grants(webui) == []
    assert "POST /api/v1/auths/add" not in webui.calls


def test_at_a_terminal_the_question_is_repeated_after_an_invalid_answer(
    webui: StandIn, installing: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["all", "everyone"]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: answers.pop(0))
    installing()
    assert grants(webui) == [EVERYONE]
    installing()
    assert answers == []


def test_access_changed_by_an_admin_stays_without_the_option_and_new_agents_are_shown(
    webui: StandIn, installing: Callable[..., str]
) -> None:
    installing("--access", "everyone")
    webui.entries["callboard.demo"].update(name="Our demo", access_grants=[])
    webui.agents["cook"] = "Cook"
    said = installing()
    assert grants(webui) == []
    assert grants(webui, "cook") == [EVERYONE]
    assert "Who sees them: Demo: only admins; Cook: everyone" in said
    assert "sees Cook, and Cook answers" in said
    installing("--access", "everyone")
    assert grants(webui) == [EVERYONE]
    assert webui.entries["callboard.demo"]["name"] == "Our demo"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"said": ""}, "sees the agents, but none answers"),
        ({"said": "> **Callboard:** Cannot reach the server."}, "sees the agents, but none answers"),
        ({"second_factor": True}, "second factor"),
    ],
)
def test_a_user_for_the_check_is_removed_if_the_check_fails(
    webui: StandIn, failing: Failing, state: dict[str, object], said: str
) -> None:
    for name, value in state.items():
        setattr(webui, name, value)
    assert said in failing("--api-key", API_KEY, "--access", "everyone")
    assert webui.users == {}


@pytest.mark.parametrize(
    ("access", "said"),
    [("all", "'all' does not say who"), ("group:Work", "no group 'Work'; it has Family"), ("group:", "'group:' does")],
)
def test_an_invalid_access_is_one_line_and_changes_nothing(
    webui: StandIn, failing: Failing, access: str, said: str
) -> None:
    assert said in failing(*SIGN_IN, "--access", access)
    assert webui.valves == {}
    assert webui.entries == {}
