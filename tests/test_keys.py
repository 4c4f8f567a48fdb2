"""The server's key in its data folder: made once, private, and known to all parts that check or redact it."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from callboard._keys import make_api_key, make_token_key, read_api_key
from callboard.errors import SettingsError
from callboard.settings import load_settings, make_server_key
from tests.processes import COMMAND, environment, run, serving


@pytest.fixture
def _careless_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_careless_umask")
def test_the_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    key = make_api_key(folder)
    assert len(key) >= 43
    assert (mode(folder), mode(folder.parent), mode(folder / "api_key")) == (0o700, 0o700, 0o600)
    assert (folder / "api_key").read_text() == f"{key}\n"
    assert make_api_key(folder) == read_api_key(folder) == key
    assert [file.name for file in folder.iterdir()] == ["api_key"]
    assert make_api_key(tmp_path / "other") != key
    folder.chmod(0o777)
    (folder / "api_key").unlink()
    make_api_key(folder)
    assert mode(folder / "api_key") == 0o600


@pytest.mark.parametrize(
    ("content", "rights", "words"),
    [
        ("", 0o600, "does not hold a key on one line"),
        ("two words\n", 0o600, "does not hold a key on one line"),
        ("schlüssel\n", 0o600, "does not hold a key on one line"),
        ("key\n", 0o640, "others can read or write it: `chmod 600 .* delete"),
    ],
)
def test_an_untrusted_file_raises_an_error_with_advice(tmp_path: Path, content: str, rights: int, words: str) -> None:
    file = tmp_path / "api_key"
    file.write_text(content)
    file.chmod(rights)
    for use in (make_api_key, read_api_key):
        with pytest.raises(SettingsError, match=words) as caught:
            use(tmp_path)
        assert "callboard key" in str(caught.value)


@pytest.mark.parametrize(("content", "rights", "words"), [("", 0o600, "holds no key"), ("k" * 43, 0o640, "chmod 600")])
def test_untrusted_key_of_tokens_is_an_error(tmp_path: Path, content: str, rights: int, words: str) -> None:
    file = tmp_path / "token_key"
    file.write_text(content)
    file.chmod(rights)
    with pytest.raises(SettingsError, match=f"{words}.*CALLBOARD_TOKEN_KEY"):
        make_token_key(tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="CALLBOARD_DATA_DIR"):
        make_api_key(tmp_path / "file" / "data")


def test_the_servers_settings_hold_the_key_of_the_folder_and_hide_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CALLBOARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CALLBOARD_HOST", "0.0.0.0")
    with pytest.raises(SettingsError, match="callboard key"):
        load_settings()
    key = make_server_key()
    settings = load_settings()
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == key
    assert settings.secrets == (key,)
    assert key not in repr(settings)


def test_a_key_of_the_environment_comes_before_the_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CALLBOARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CALLBOARD_API_KEY", "from-outside")
    assert make_server_key() == "from-outside"
    assert list(tmp_path.iterdir()) == []
    make_api_key(tmp_path)
    assert load_settings().secrets == ("from-outside",)


def test_two_processes_that_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    ready = "import sys; from callboard._cli import main; print('ready', flush=True); sys.stdin.read(); "
    command = [COMMAND[0], "-c", f"{ready}sys.exit(main(['key']))"]
    waiting, go = os.pipe()
    makers = [
        subprocess.Popen(command, env=environment(tmp_path / "data"), stdin=waiting, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    os.close(waiting)
    for maker in makers:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "ready\n"
    os.close(go)
    said = {maker.communicate(timeout=120)[0] for maker in makers}
    assert said == {(tmp_path / "data" / "api_key").read_text()}


def test_the_command_prints_the_key_that_the_server_then_asks_for(tmp_path: Path) -> None:
    made = run(tmp_path, "key")
    again = run(tmp_path, "key")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == again.stdout
    key = made.stdout.strip()
    with serving(tmp_path) as (url, _):
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.slow
def test_a_server_without_a_key_says_so_at_each_start_and_one_with_a_key_does_not(tmp_path: Path) -> None:
    for _ in range(2):
        [warning] = warnings_at_start(tmp_path)
        assert "callboard key" in warning["hint"]
        assert "stored chats" in warning["danger"]
    key = make_api_key(tmp_path)
    assert warnings_at_start(tmp_path) == []
    assert warnings_at_start(tmp_path, API_KEY=key) == []


def warnings_at_start(folder: Path, **settings: str) -> list[dict[str, str]]:
    """The server's warnings until it listens."""
    with serving(folder, **settings) as (_, process):
        return [event for event in process.events if event["level"] == "warning"]
