"""The key that this server made for itself: a file in its data folder that its user alone may read."""

import os
import secrets
from pathlib import Path

from pydantic import SecretStr

from callboard.errors import SettingsError

FILE_NAME = "api_key"
KEY_BYTES = 32


def read_api_key(data_dir: Path) -> SecretStr | None:
    """Return the key in `data_dir`; None where none was made. Raises `SettingsError` for one that cannot be read."""
    path = _path(data_dir)
    try:
        key = path.read_text("ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read as the server's key: allow it, or remove it.") from error
    if not key:
        raise SettingsError(f"{path} is empty: remove it, and a new key is made.")
    return SecretStr(key)


def make_api_key(data_dir: Path) -> SecretStr:
    """Return the key in `data_dir`, made now unless there is one. Raises `SettingsError` where it cannot be kept."""
    path = _path(data_dir)
    made = secrets.token_urlsafe(KEY_BYTES)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.exists() and (kept := read_api_key(data_dir)) is not None:
            return kept
        raise SettingsError(f"CALLBOARD_DATA_DIR: {path.parent} is no folder; set another.") from None
    except OSError as error:
        raise SettingsError(f"CALLBOARD_DATA_DIR: {path.parent} cannot be written ({error.strerror}).") from error
    with os.fdopen(handle, "w") as file:
        file.write(made + "\n")
    return SecretStr(made)


def _path(data_dir: Path) -> Path:
    return data_dir.expanduser().resolve() / FILE_NAME
