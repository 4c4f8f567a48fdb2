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
from service import free_port
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

    def __call__(self, *arguments: str, url: str | None = None) -> str:
        address = self.webui.url if url is None else url
        assert main(["--url", address, "--file", self.source, *arguments]) == 1
        said = self.capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.startswith("install_pipe: ")
        assert PASSWORD not in said
        assert API_KEY not in said
        return said


@pytest.fixture
def failing(webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]) -> Failing:
    return Failing(webui, source, capsys)


def test_a_first_installation_creates_the_function_sets_its_valves_and_activates_it(
    webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    valves = ["--callboard-url", "http://there:8700", "--callboard-api-key", "k", "--valve", "RESULT_CHARS=500"]
    assert main(["--url", webui.url, "--file", source, *SIGN_IN, *valves]) == 0
    function = webui.functions["callboard"]
    assert function["is_active"]
    assert function["content"] == SOURCE
    assert webui.valves["callboard"] == {
        "CALLBOARD_URL": "http://there:8700",
        "CALLBOARD_API_KEY": "k",
        "RESULT_CHARS": "500",
    }
    said = capsys.readouterr()
    assert "Installed the pipe in Open WebUI 0.12.4" in said.out
    assert "callboard.demo" in said.out
    assert "other.model" not in said.out
    assert said.err == ""


def test_a_second_installation_updates_the_source_and_leaves_it_active(webui: StandIn, source: str) -> None:
    install = ["--url", webui.url, *SIGN_IN, "--file", source]
    assert main(install) == 0
    Path(source).write_text(SOURCE + "# newer\n")
    assert main(install) == 0
    assert webui.functions["callboard"]["content"].endswith("# newer\n")
    assert webui.functions["callboard"]["is_active"]
    assert "POST /api/v1/functions/sync" not in webui.calls


def test_an_inactive_function_is_activated_by_an_update(webui: StandIn, source: str) -> None:
    install = ["--url", webui.url, *SIGN_IN, "--file", source]
    assert main(install) == 0
    webui.functions["callboard"]["is_active"] = False
    assert main(install) == 0
    assert webui.functions["callboard"]["is_active"]


def test_valves_changed_in_open_webui_are_kept_unless_an_option_sets_them(webui: StandIn, source: str) -> None:
    install = ["--url", webui.url, *SIGN_IN, "--file", source]
    assert main([*install, "--callboard-url", "http://first:8700"]) == 0
    webui.valves["callboard"] |= {"RESULT_CHARS": 77, "CALLBOARD_URL": "http://changed:8700"}
    assert main([*install, "--callboard-api-key", "k"]) == 0
    assert webui.valves["callboard"] == {
        "RESULT_CHARS": 77,
        "CALLBOARD_URL": "http://changed:8700",
        "CALLBOARD_API_KEY": "k",
    }
    assert main([*install, "--callboard-url", "http://given:8700"]) == 0
    assert webui.valves["callboard"]["CALLBOARD_URL"] == "http://given:8700"


def test_the_servers_key_is_read_from_its_file_unless_it_is_given(webui: StandIn, source: str, tmp_path: Path) -> None:
    key = make_api_key(tmp_path)
    install = ["--url", webui.url, *SIGN_IN, "--file", source, "--callboard-api-key-file", str(tmp_path / "api_key")]
    for given, expected in (([], key), (["--callboard-api-key="], key), (["--callboard-api-key=k"], "k")):
        assert main([*install, *given]) == 0
        assert webui.valves["callboard"]["CALLBOARD_API_KEY"] == expected


def test_a_key_file_that_is_not_there_is_one_line(failing: Failing, tmp_path: Path) -> None:
    said = failing(*SIGN_IN, "--callboard-api-key-file", str(tmp_path / "api_key"))
    assert "The server's key cannot be read" in said


def test_a_name_given_to_the_function_in_open_webui_is_kept(webui: StandIn, source: str) -> None:
    install = ["--url", webui.url, *SIGN_IN, "--file", source]
    assert main(install) == 0
    webui.functions["callboard"]["name"] = "Our agents"
    assert main(install) == 0
    assert webui.functions["callboard"]["name"] == "Our agents"


def test_an_api_key_does_instead_of_a_password(webui: StandIn, source: str) -> None:
    assert main(["--url", webui.url, "--api-key", API_KEY, "--file", source]) == 0
    assert "POST /api/v1/auths/signin" not in webui.calls


def test_credentials_of_the_environment_are_the_default(
    webui: StandIn, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPEN_WEBUI_URL", webui.url)
    monkeypatch.setenv("OPEN_WEBUI_EMAIL", ADMIN)
    monkeypatch.setenv("OPEN_WEBUI_PASSWORD", PASSWORD)
    assert main(["--file", source]) == 0


def test_who_is_named_on_the_command_line_comes_before_a_key_in_the_environment(
    webui: StandIn, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPEN_WEBUI_API_KEY", "sk-of-another")
    assert main(["--url", webui.url, "--file", source, *SIGN_IN]) == 0


def test_the_function_may_have_another_id(webui: StandIn, source: str) -> None:
    assert main(["--url", webui.url, *SIGN_IN, "--file", source, "--id", "Agents"]) == 0
    assert list(webui.functions) == ["agents", "agents_events", "agents_approvals"]


def test_the_function_for_events_is_installed_beside_the_pipe(
    webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", webui.url, *SIGN_IN, "--file", source]) == 0
    events = webui.functions["callboard_events"]
    assert (events["type"], events["is_active"]) == ("event", True)
    assert events["content"] == install_pipe.EVENTS.read_text()
    assert "callboard_events" in capsys.readouterr().out


def test_a_function_for_events_that_was_switched_off_is_updated_and_stays_off(webui: StandIn, source: str) -> None:
    assert main(["--url", webui.url, *SIGN_IN, "--file", source]) == 0
    events = webui.functions["callboard_events"]
    events.update(is_active=False, content="# Callboard's, of an earlier version")
    assert main(["--url", webui.url, *SIGN_IN, "--file", source]) == 0
    assert not events["is_active"]
    assert events["content"] == install_pipe.EVENTS.read_text()


def test_the_function_for_approvals_is_installed_for_all_models(
    webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["--url", webui.url, *SIGN_IN, "--file", source]) == 0
        approvals = webui.functions["callboard_approvals"]
        assert (approvals["type"], approvals["is_active"], approvals["is_global"]) == ("filter", True, True)
        assert approvals["content"] == install_pipe.FILTER.read_text()
        assert "callboard_approvals" in capsys.readouterr().out


def test_an_open_webui_without_cards_that_wait_gets_no_function_for_approvals(
    webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    webui.version = "0.11.4"
    assert main(["--url", webui.url, *SIGN_IN, "--file", source]) == 0
    assert list(webui.functions) == ["callboard", "callboard_events"]
    assert "Open WebUI 0.11.4 has no cards for approvals that wait" in capsys.readouterr().out


def test_an_open_webui_without_events_gets_the_pipe_and_a_notice(
    webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    webui.version = "0.9.6"
    assert main(["--url", webui.url, *SIGN_IN, "--file", source]) == 0
    assert list(webui.functions) == ["callboard"]
    assert "Open WebUI 0.9.6 has no events for functions; 0.10 and later have" in capsys.readouterr().out


def test_another_function_with_the_id_for_events_is_not_overwritten(
    webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = {"id": "callboard_events", "name": "Theirs", "content": "# other", "type": "event", "is_active": True}
    webui.functions["callboard_events"] = theirs
    assert main(["--url", webui.url, *SIGN_IN, "--file", source]) == 0
    assert webui.functions["callboard_events"]["content"] == "# other"
    assert "belongs to another function there, 'Theirs'" in capsys.readouterr().out


def test_an_unreachable_server_is_reported_after_the_installation(webui: StandIn, failing: Failing) -> None:
    webui.server_reachable = False
    said = failing(*SIGN_IN)
    assert f"The pipe is installed, but it reports {UNREACHABLE!r}" in said
    assert webui.functions["callboard"]["is_active"]


def test_a_wrong_address_is_one_line(failing: Failing) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    said = failing(*SIGN_IN, url=url)
    assert f"No Open WebUI answers at {url}" in said
    assert "refused" in said


def test_an_address_without_a_scheme_is_one_line(failing: Failing) -> None:
    assert "must begin with http:// or https://" in failing(*SIGN_IN, url="localhost:8080")


def test_something_else_at_the_address_is_one_line(failing: Failing, tmp_path: Path) -> None:
    class Files(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        said = failing(*SIGN_IN, url=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()
    assert "not an Open WebUI" in said


def test_a_wrong_password_is_one_line(failing: Failing) -> None:
    said = failing("--email", ADMIN, "--password", "wrong")
    assert f"refused the sign-in of {ADMIN}" in said
    assert "incorrect" in said


def test_an_account_that_is_no_admin_is_one_line(failing: Failing) -> None:
    assert "is not an admin there (role 'user')" in failing("--email", USER, "--password", PASSWORD)


def test_a_wrong_api_key_is_one_line(failing: Failing) -> None:
    assert "does not accept this API key" in failing("--api-key", "sk-wrong")


def test_api_keys_turned_off_is_one_line(webui: StandIn, failing: Failing) -> None:
    webui.api_keys_on = False
    assert "Use of API key is not enabled" in failing("--api-key", API_KEY)


def test_passwords_turned_off_is_one_line(webui: StandIn, failing: Failing) -> None:
    webui.passwords_on = False
    assert "use an API key" in failing(*SIGN_IN)


def test_too_many_sign_ins_is_one_line(webui: StandIn, failing: Failing) -> None:
    webui.rate_limited = True
    assert "wait a few minutes" in failing(*SIGN_IN)


def test_a_second_factor_is_one_line(webui: StandIn, failing: Failing) -> None:
    webui.second_factor = True
    assert "second factor" in failing(*SIGN_IN)


def test_a_source_that_open_webui_cannot_load_is_one_line_with_its_reason(webui: StandIn, failing: Failing) -> None:
    webui.source_error = "No module named 'x'\nin line 3"
    assert "could not create the pipe (400): No module named 'x' in line 3" in failing(*SIGN_IN)


def test_functions_turned_off_is_one_line(webui: StandIn, failing: Failing) -> None:
    webui.functions_on = False
    assert "lists no model of it" in failing(*SIGN_IN)


def test_another_function_with_the_id_is_not_overwritten(webui: StandIn, failing: Failing) -> None:
    theirs = {"id": "callboard", "name": "Theirs", "content": "class Filter: ...", "type": "filter", "is_active": True}
    webui.functions["callboard"] = dict(theirs)
    assert "belongs to another function there, 'Theirs'" in failing(*SIGN_IN)
    assert webui.functions["callboard"] == theirs


def test_a_valve_that_the_pipe_does_not_have_is_one_line(failing: Failing) -> None:
    assert "no valve 'COLOUR'; it has CALLBOARD_URL" in failing(*SIGN_IN, "--valve", "COLOUR=red")


def test_a_valve_without_a_value_is_one_line(failing: Failing) -> None:
    assert "--valve takes NAME=VALUE" in failing(*SIGN_IN, "--valve", "COLOUR")


def test_a_source_that_is_not_there_is_one_line(failing: Failing) -> None:
    assert "The source of the pipe cannot be read" in failing(*SIGN_IN, "--file", "/nowhere/pipe.py")


def test_missing_credentials_are_one_line(failing: Failing) -> None:
    assert "--email" in failing()


def test_no_password_and_no_terminal_is_one_line(failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert "no terminal to ask" in failing("--email", ADMIN)


def test_credentials_do_not_show_their_secrets() -> None:
    shown = repr(install_pipe.Credentials(ADMIN, PASSWORD, API_KEY))
    assert ADMIN in shown
    assert PASSWORD not in shown
    assert API_KEY not in shown


# --- Who sees the agents.


@pytest.fixture
def installing(webui: StandIn, source: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command line, expects it to succeed, and returns its output."""

    def run(*arguments: str) -> str:
        assert main(["--url", webui.url, "--file", source, *SIGN_IN, *arguments]) == 0
        return capsys.readouterr().out

    return run


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


def test_agents_for_admins_only_are_not_checked_with_a_user(webui: StandIn, installing: Callable[..., str]) -> None:
    assert "Who sees them: only admins (--access" in installing("--access", "admins")
    assert grants(webui) == []
    assert "POST /api/v1/auths/add" not in webui.calls


def test_without_the_option_and_a_terminal_open_webuis_default_stays_and_is_printed(
    webui: StandIn, installing: Callable[..., str]
) -> None:
    said = installing()
    [line] = [line for line in said.splitlines() if "--access" in line]
    assert line == "Who sees them: only admins (--access everyone, admins or group:NAME changes it)."
    assert webui.entries == {}


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


@pytest.mark.parametrize("said", ["", "> **Callboard:** Cannot reach the server."])
def test_an_agent_that_does_not_answer_users_is_one_line_and_the_user_is_removed(
    webui: StandIn, failing: Failing, said: str
) -> None:
    webui.said = said
    assert "sees the agents, but none answers" in failing(*SIGN_IN, "--access", "everyone")
    assert webui.users == {}


def test_users_with_a_second_factor_are_not_checked_and_removed(webui: StandIn, failing: Failing) -> None:
    webui.second_factor = True
    assert "second factor" in failing("--api-key", API_KEY, "--access", "everyone")
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


def test_the_rendering_is_a_flag(webui: StandIn, installing: Callable[..., str]) -> None:
    installing("--rendering", "native")
    assert webui.valves["callboard"]["RENDERING"] == "native"
