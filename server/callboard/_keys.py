"""The server's own keys, in files in the data folder that only its owner can read."""

import errno
import os
import secrets
from pathlib import Path

from callboard._private_files import create_private_file, make_private_folder, read_private_file
from callboard.errors import SettingsError

KEY_FILE = "api_key"
TOKEN_KEY_FILE = "token_key"  # noqa: S105 - the name of the file
KEY_BYTES = 32


def make_api_key(data_dir: Path) -> str:
    """Return the key in the folder's `api_key`; make it first if there is none. Concurrent processes get the same key.

    Raises `SettingsError` if the file cannot be written, or exists and cannot be used.
    """
    file = data_dir.expanduser() / KEY_FILE
    try:
        _make_key(file)
    except OSError as error:
        raise SettingsError(
            f"the API key cannot be written to {file} ({error.strerror}): set CALLBOARD_DATA_DIR to a folder that the "
            "server can write, or set CALLBOARD_API_KEY to a long random string"
        ) from error
    key = read_api_key(data_dir)
    if key is None:
        raise SettingsError(f"{file} was deleted while it was made: run `callboard key` again")
    return key


def read_api_key(data_dir: Path) -> str | None:
    """Return the key in the folder's `api_key`; None if there is no such file.

    Raises `SettingsError` if others can read the file, if another user made it, or if it is not one line with a key.
    """
    file = data_dir.expanduser() / KEY_FILE
    try:
        text = read_private_file(file).strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(f"the API key in {file} cannot be used ({error.strerror}): {_advise(file)}") from error
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise SettingsError(f"{file} does not hold a key on one line: {_advise(file)}")
    return text


def make_token_key(data_dir: Path) -> str:
    """Return the key in the folder's `token_key`, which encrypts users' tokens; make it first if there is none.

    Raises `SettingsError`.
    """
    file = data_dir.expanduser() / TOKEN_KEY_FILE
    try:
        _make_key(file)
        key = read_private_file(file).strip()
        if len(key) < KEY_BYTES:
            raise OSError(errno.EINVAL, "it holds no key")  # noqa: TRY301 - as if it could not be read
    except OSError as error:
        raise SettingsError(
            f"the key of users' tokens in {file} cannot be used ({error.strerror}): restore it; or delete it, after "
            "which users sign in again; or set CALLBOARD_TOKEN_KEY"
        ) from error
    return key


def _make_key(file: Path) -> None:
    """Write a new key to the file if there is none. Raises `OSError`."""
    if file.exists():
        return
    make_private_folder(file.parent)
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    with os.fdopen(create_private_file(draft), "w", encoding="ascii") as new:
        new.write(secrets.token_urlsafe(KEY_BYTES) + "\n")
    try:
        # Linking is atomic and fails if the file exists, so the first process's key is used by all.
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _advise(file: Path) -> str:
    return f"delete {file} and run `callboard key`, which makes a new one, or set CALLBOARD_API_KEY"
