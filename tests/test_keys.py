"""The key that the server made is kept for its user alone, and made once."""

import stat
from pathlib import Path

import pytest

from callboard.errors import SettingsError
from callboard.keys import make_api_key, read_api_key


def test_a_key_is_made_once_and_its_user_alone_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    assert read_api_key(folder) is None
    made = make_api_key(folder)
    assert read_api_key(folder) == made
    assert make_api_key(folder) == made
    assert len(made.get_secret_value()) > 30
    assert stat.S_IMODE((folder / "api_key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_empty_file_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "api_key").touch()
    for ask in (read_api_key, make_api_key):
        with pytest.raises(SettingsError, match="is empty: remove it"):
            ask(tmp_path)


def test_a_folder_that_is_a_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert read_api_key(tmp_path / "data") is None
    with pytest.raises(SettingsError, match="CALLBOARD_DATA_DIR"):
        make_api_key(tmp_path / "data")
