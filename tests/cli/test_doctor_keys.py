"""The doctor's checks of access: named keys, the secret that signs users, and the permissions of their files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from callboard._named_keys import add_named_key, remove_named_key
from tests.cli.conftest import Doctor

SECRET = "5c0e2f1dbb7c0c3f66a1d2b0f6f6d9a4fbb02e6c7b3a1d9f00c4be1f6ad27c33"
"""As `openssl rand -hex 32` makes it."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "api_keys"


def test_correct_keys_are_counted_and_named(doctor: Doctor, file: Path) -> None:
    for number in range(7):
        add_named_key(file, f"client-{number}")
    found = doctor(API_KEYS_FILE=str(file))
    assert found.of("keys") == [
        "✓ keys: 7 with names: client-0, client-1, client-2, client-3, client-4, …",
    ]
    beside = doctor(API_KEYS_FILE=str(file), API_KEY="a-key")
    assert "7 with names and one without a name" in beside.of("keys")[0]
    assert file.read_text() not in "\n".join(beside.lines)


def test_no_key_and_one_key_without_a_name_are_not_faults(doctor: Doctor) -> None:
    assert doctor().of("keys") == [
        "– keys: none is set: every program on this machine may use the server → callboard key"
    ]
    assert doctor(API_KEY="the one").of("keys") == ["✓ keys: one, without a name"]


def leave_out(file: Path) -> None:
    file.unlink()


def open_to_others(file: Path) -> None:
    file.chmod(0o644)


def write_a_key_into_it(file: Path) -> None:
    file.write_text("scripts cb-in-the-clear\n")


def write_no_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")


def put_a_folder_there(file: Path) -> None:
    file.unlink()
    file.mkdir(mode=0o700)


def take_the_last_key(file: Path) -> None:
    remove_named_key(file, "scripts")


def open_its_folder(file: Path) -> None:
    file.parent.chmod(0o777)


@pytest.mark.parametrize(
    ("breaking", "words", "advice"),
    [
        (leave_out, "cannot be read", "`callboard key --add NAME` makes it"),
        (put_a_folder_there, "it is a folder", "callboard key --add NAME"),
        (open_to_others, "others can read or write", "chmod 600"),
        (write_a_key_into_it, "line 1", "write NAME sha256:HASH"),
        (write_no_text, "it is not text", "callboard key --add NAME"),
        (take_the_last_key, "every request is refused", "callboard key --add NAME"),
        (open_its_folder, "by another file", "chmod go-w"),
    ],
)
def test_problems_of_the_keys_file_are_reported_with_advice(
    doctor: Doctor, file: Path, breaking: Callable[[Path], None], words: str, advice: str
) -> None:
    add_named_key(file, "scripts")
    breaking(file)
    [line] = doctor(API_KEYS_FILE=str(file)).broken
    assert line.startswith("✗ keys: ")
    assert words in line
    assert advice in line
    assert "in-the-clear" not in line


def test_an_empty_keys_file_is_not_a_fault_if_the_server_has_a_key(doctor: Doctor, file: Path) -> None:
    add_named_key(file, "scripts")
    remove_named_key(file, "scripts")
    [line] = doctor(API_KEYS_FILE=str(file), API_KEY="the one").of("keys")
    assert line.startswith("– keys: one without a name, and none in")


def test_unknown_keys_for_the_inspector_are_named(doctor: Doctor, file: Path) -> None:
    add_named_key(file, "ann")
    [line] = doctor(API_KEYS_FILE=str(file), INSPECT_KEYS="ann,bob").broken
    assert "names unknown keys: bob" in line


@pytest.mark.parametrize("origin", ["the environment", ".env"])
def test_an_env_file_with_secrets_that_others_can_read_is_reported(doctor: Doctor, tmp_path: Path, origin: str) -> None:
    key = "a-key-that-nobody-may-see"
    env_file = tmp_path / ".env"
    env_file.write_text(f"CALLBOARD_API_KEY={key}\n" if origin == ".env" else "CALLBOARD_LOG_LEVEL=info\n")
    env_file.chmod(0o644)
    settings = {} if origin == ".env" else {"API_KEY": key}
    told = [line for line in doctor(**settings).of("keys") if ".env" in line]
    assert told == (
        ["– keys: others can read .env, which contains secrets → chmod 600 .env"] if origin == ".env" else []
    )
    env_file.chmod(0o600)
    assert not [line for line in doctor(**settings).of("keys") if ".env" in line]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "– users: a client with a key may act for any user"),
        ({"OPEN_WEBUI_JWT_SECRET": SECRET, "API_KEY": "k"}, "✓ users: Open WebUI signs for them"),
        ({"OPEN_WEBUI_JWT_SECRET": SECRET}, "– users: Open WebUI signs for them, but no key is set"),
        ({"OPEN_WEBUI_JWT_SECRET": ""}, "✗ users: CALLBOARD_OPEN_WEBUI_JWT_SECRET is set but empty"),
        (
            {"OPEN_WEBUI_JWT_SECRET": SECRET, "API_KEY": SECRET},
            "✗ users: CALLBOARD_OPEN_WEBUI_JWT_SECRET equals the API",
        ),
        ({"OPEN_WEBUI_JWT_SECRET": "changeme" * 4}, "✗ users: CALLBOARD_OPEN_WEBUI_JWT_SECRET can be guessed"),
    ],
)
def test_the_trust_in_user_ids_is_reported(doctor: Doctor, settings: dict[str, str], line: str) -> None:
    [found] = doctor(**settings).of("users")
    assert found.startswith(line)
    assert SECRET not in found


def test_a_secret_that_is_too_short_is_named_and_not_shown(doctor: Doctor) -> None:
    found = doctor(OPEN_WEBUI_JWT_SECRET="too-short-a-secret")
    assert "must have at least 32 characters" in found.of("settings")[0]
    assert "too-short-a-secret" not in "\n".join(found.lines)
