"""The commands read `.env` in the working directory, after the environment, and report a broken file with advice."""

from pathlib import Path

import pytest

from callboard.errors import SettingsError
from callboard.settings import Settings, load_settings, read_env_file, read_environment
from tests.processes import run, serving


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_nonempty_variable_of_the_environment_comes_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("CALLBOARD_PORT=1\nCALLBOARD_MODEL=file\n")
    monkeypatch.setenv("CALLBOARD_PORT", "2")
    monkeypatch.setenv("CALLBOARD_MODEL", "")
    monkeypatch.setenv("HOST", "example.org")
    settings = load_settings()
    assert (settings.host, settings.port, settings.model) == ("127.0.0.1", 2, "file")
    # In a program that makes its own settings, the file counts for nothing.
    assert Settings().model is None


def test_it_is_written_as_for_other_programs(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "\ufeff# A comment\nexport CALLBOARD_MODEL='a # b'  # the model\n\nCALLBOARD_HOST=\"localhost\"\n"
        "OPEN_WEBUI_PORT=3000\nCALLBOARD_AGENTS = a.py, b.py\nCALLBOARD_API_KEY=\n",
        "utf-8",
    )
    settings = load_settings()
    assert (settings.model, settings.host, settings.agents) == ("a # b", "localhost", ("a.py", "b.py"))
    assert settings.api_key is None


def test_a_misspelt_setting_in_it_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CALLBOARD_PROT=1\nOPEN_WEBUI_PROT=1\n")
    with serving(tmp_path) as (_, process):
        [warning] = [event for event in process.events if event["event"] == "unknown_setting"]
    assert warning["name"] == "CALLBOARD_PROT"


@pytest.mark.parametrize("command", ["serve", "install-pipe"])
def test_a_file_that_is_not_utf_8_fails_with_one_line_of_advice(tmp_path: Path, command: str) -> None:
    (tmp_path / ".env").write_bytes("CALLBOARD_API_KEY=geheim".encode("utf-16"))
    ended = run(tmp_path, command)
    assert ended.returncode == 1
    assert ended.stderr == "callboard: the settings are wrong\n.env is not UTF-8: save it as UTF-8, or move it away.\n"


def test_an_unreadable_file_fails_with_a_message(tmp_path: Path) -> None:
    # Readable by its rights and not in fact, for root too.
    (tmp_path / ".env").symlink_to("/proc/self/mem")
    with pytest.raises(SettingsError, match=r"\.env cannot be read .*: allow it, or move it away"):
        read_environment()


@pytest.mark.parametrize("wrong", ["CALLBOARD_API_KEY secret=1", "CALLBOARD_API_KEY='secret", "'secret"])
def test_a_wrong_line_is_named_by_number_and_not_shown(tmp_path: Path, wrong: str) -> None:
    (tmp_path / ".env").write_text(f"CALLBOARD_PORT=1\n{wrong}\n")
    with pytest.raises(SettingsError, match=r"\.env, line 2: write NAME=VALUE") as caught:
        read_environment()
    assert "secret" not in str(caught.value)


def test_a_missing_file_and_a_folder_of_that_name_are_ignored(tmp_path: Path) -> None:
    assert read_env_file(tmp_path / ".env") == {}
    (tmp_path / ".env").mkdir()
    assert read_env_file(tmp_path / ".env") == {}
