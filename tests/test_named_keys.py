"""Keys with names: hashed in a file, read again when that changes, shown once, and never logged."""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from callboard._named_keys import KeysFile, add_named_key, read_named_keys, remove_named_key
from callboard.agents import RunContext
from callboard.errors import SettingsError
from callboard_protocol import Event, Message
from tests.processes import run
from tests.serving import ScriptedAgent, request, serving

HASH = "0" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "api_keys"


@pytest.fixture
def _careless_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_careless_umask")
def test_the_file_has_no_keys_and_only_its_owner_can_read_it(file: Path) -> None:
    keys = [add_named_key(file, name) for name in ("scripts", "open-webui")]
    assert len(set(keys)) == 2
    assert all(len(key) >= 46 for key in keys)
    assert not any(key in file.read_text() or key[3:] in file.read_text() for key in keys)
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert [one.name for one in read_named_keys(file)] == ["scripts", "open-webui"]
    assert [found.name for found in file.parent.iterdir()] == ["api_keys"]


def test_a_key_is_known_by_its_name_until_it_is_taken_away(file: Path) -> None:
    first, second = (add_named_key(file, name) for name in ("first", "second"))
    keys = KeysFile(file)
    assert (keys.find_name(first), keys.find_name(second)) == ("first", "second")
    for wrong in ("", first[:-1], f"{first}x", first.upper(), first + second, "\ud800", HASH, "first"):
        assert keys.find_name(wrong) is None
    # The content of the file is not usable as a key.
    for one in read_named_keys(file):
        assert keys.find_name(one.digest) is None
    remove_named_key(file, "first")
    assert (keys.find_name(first), keys.find_name(second)) == (None, "second")
    third = add_named_key(file, "first")
    assert (keys.find_name(first), keys.find_name(third)) == (None, "first")


def test_a_second_key_with_a_name_is_refused(file: Path) -> None:
    key = add_named_key(file, "scripts")
    with pytest.raises(SettingsError, match="there is already a key 'scripts'"):
        add_named_key(file, "scripts")
    with pytest.raises(SettingsError, match="there is no key 'other'"):
        remove_named_key(file, "other")
    assert KeysFile(file).find_name(key) == "scripts"


@pytest.mark.parametrize("name", ["", "api key", "a\nb", "x" * 65, "ä", "a/b"])
def test_an_invalid_name_is_refused(file: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="name"):
        add_named_key(file, name)
    assert not file.exists()


def test_keys_that_are_made_at_one_time_are_all_there(file: Path) -> None:
    names = [f"client-{number}" for number in range(20)]
    with ThreadPoolExecutor(10) as threads:
        keys = list(threads.map(lambda name: add_named_key(file, name), names))
    known = KeysFile(file)
    assert [known.find_name(key) for key in keys] == names


@pytest.mark.parametrize("rights", [0o640, 0o602])
def test_a_file_that_others_may_read_or_write_is_refused(file: Path, rights: int) -> None:
    add_named_key(file, "scripts")
    file.chmod(rights)
    with pytest.raises(SettingsError, match="others can read or write"):
        KeysFile(file)
    with pytest.raises(SettingsError, match="others can read or write"):
        add_named_key(file, "other")


@pytest.mark.parametrize(
    "line",
    [
        "cb-a-key-in-the-clear",
        "scripts cb-a-key-in-the-clear",
        f"scripts sha256:{HASH[1:]}",
        f"one sha256:{HASH}\none sha256:{HASH}",
    ],
)
def test_a_line_that_is_none_is_named_and_not_repeated(file: Path, line: str) -> None:
    file.parent.mkdir()
    file.write_text(f"# ours\n\n{line}\n")
    file.chmod(0o600)
    with pytest.raises(SettingsError, match=r"line [34]") as refused:
        KeysFile(file)
    assert "in-the-clear" not in str(refused.value)


def replace_by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def test_a_file_that_becomes_unusable_has_no_keys_and_is_logged_once(file: Path) -> None:
    key = add_named_key(file, "scripts")
    keys = KeysFile(file)
    good = file.read_text()
    for breaking in (lambda: file.write_text("broken"), file.unlink, lambda: replace_by_pipe(file)):
        file.write_text(good)
        file.chmod(0o600)
        assert keys.find_name(key) == "scripts"
        breaking()
        with capture_logs() as logged:
            assert [keys.find_name(key) for _ in range(3)] == [None] * 3
        assert [line["event"] for line in logged] == ["api_keys_refused"]
    with pytest.raises(SettingsError, match="a named pipe"):
        add_named_key(file, "other")
    with pytest.raises(SettingsError, match="a folder"):
        read_named_keys(file.parent)


async def hello(_: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Hello.")


async def test_a_server_takes_its_one_key_and_those_of_the_file_and_no_other(tmp_path: Path, file: Path) -> None:
    key = add_named_key(file, "scripts")
    async with serving(tmp_path, ScriptedAgent(hello), api_key="the-one-key", api_keys_file=file) as service:
        for sent, status in ((key, 200), ("the-one-key", 200), ("scripts", 401), (key[:-1], 401), ("", 401)):
            answer = await service.client.get("/v1/models", headers=bearer(sent) if sent else {})
            assert answer.status_code == status
            assert not sent or sent not in answer.text
        basic = await service.client.get("/v1/models", headers={"Authorization": f"Basic {key}"})
        assert basic.status_code == 401
        remove_named_key(file, "scripts")
        assert (await service.client.get("/v1/models", headers=bearer(key))).status_code == 401
        later = add_named_key(file, "later")
        with capture_logs([merge_contextvars]) as logged:
            answer = await service.client.post("/v1/runs", json=request(), headers=bearer(later))
        assert answer.status_code == 200
    assert later not in str(logged)
    of_run = [line for line in logged if line["event"].startswith("run_")]
    assert {line["event"]: line["key"] for line in of_run} == {"run_started": "later", "run_ended": "later"}


async def test_with_an_empty_file_and_no_other_key_every_request_is_refused(tmp_path: Path, file: Path) -> None:
    add_named_key(file, "scripts")
    remove_named_key(file, "scripts")
    async with serving(tmp_path, api_keys_file=file) as service:
        for headers in ({}, bearer("None"), bearer("scripts")):
            assert (await service.client.get("/v1/models", headers=headers)).status_code == 401


def test_the_command_makes_lists_and_removes_keys_and_prints_a_key_once(tmp_path: Path, file: Path) -> None:
    settings = {"API_KEYS_FILE": str(file), "HOST": "0.0.0.0"}
    missing = run(tmp_path, "serve", **settings)
    assert (missing.returncode, "callboard key --add" in missing.stderr) == (1, True)
    assert "is not set" in run(tmp_path, "key", "--add", "scripts").stderr
    made = run(tmp_path, "key", "--add", "scripts", **settings)
    assert KeysFile(file).find_name(made.stdout.strip()) == "scripts"
    listed = run(tmp_path, "key", "--list", **settings)
    assert (listed.stdout, listed.stderr) == ("scripts\n", "")
    assert run(tmp_path, "key", "--remove", "scripts", **settings).returncode == 0
    assert run(tmp_path, "key", "--list", **settings).stdout == ""
