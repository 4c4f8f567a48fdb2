"""Checks of who is let in: the keys with names, the secret that users are signed with, and who may read either."""

import os
import stat
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from callboard._cli.doctor.findings import Context, Finding, broken, unset, well
from callboard._named_keys import read_named_keys
from callboard._private_files import OTHERS
from callboard._settings import ENV_FILE, Settings, secrets_in
from callboard.errors import SettingsError

KEYS = "keys"
USERS = "users"
JWT_SECRET = "CALLBOARD_OPEN_WEBUI_JWT_SECRET"  # noqa: S105 - the name of a setting
NAMES_SHOWN = 5
LEAST_CHARACTERS = 8
"""The least different characters of a secret: one at random nearly always has them, `changeme` over and over not."""


async def check_keys(context: Context) -> AsyncIterator[Finding]:
    """Look at the one key and at the file of keys with names: is it there, whole, and its owner's alone."""
    settings = context.settings
    if not settings.has_key:
        yield unset(KEYS, "none is asked for: every program of this machine may use the server", "callboard key")
    elif settings.api_keys_file is None:
        yield well(KEYS, "one, without a name")
    else:
        for finding in _look_at_file(settings.api_keys_file.expanduser(), settings):
            yield finding
    if open_file := _look_at_env_file(context.variables):
        yield open_file


def _look_at_file(file: Path, settings: Settings) -> list[Finding]:
    try:
        names = [one.name for one in read_named_keys(file)]
    except SettingsError as error:
        # It says what to do itself.
        return [broken(KEYS, error)]
    beside = " beside the one without" if settings.api_key else ""
    findings = []
    if names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        findings.append(well(KEYS, f"{len(names)} with names{beside}: {shown}"))
    elif settings.api_key:
        findings.append(unset(KEYS, f"one without a name, and none in {file}", "callboard key --add NAME"))
    else:
        findings.append(broken(KEYS, f"there is none in {file}: nobody is let in", "callboard key --add NAME"))
    if _may_others_write(file.parent):
        text = f"others may put another file in the place of {file}"
        findings.append(broken(KEYS, text, f"chmod go-w {file.parent}"))
    if unknown := sorted(set(settings.inspect_keys) - set(names)):
        text = f"CALLBOARD_INSPECT_KEYS names keys that are not there: {', '.join(unknown)}"
        findings.append(broken(KEYS, text, "callboard key --list"))
    return findings


def _may_others_write(folder: Path) -> bool:
    mode = folder.stat().st_mode
    # In a sticky folder, such as /tmp, a file is its owner's to replace.
    return os.name == "posix" and bool(mode & (stat.S_IWGRP | stat.S_IWOTH)) and not mode & stat.S_ISVTX


def _look_at_env_file(variables: Mapping[str, str]) -> Finding | None:
    if os.name != "posix" or not ENV_FILE.is_file() or not ENV_FILE.stat().st_mode & OTHERS:
        return None
    text = ENV_FILE.read_text(encoding="utf-8", errors="replace")
    if not any(secret in text for secret in secrets_in(variables)):
        return None
    return unset(KEYS, f"others may read {ENV_FILE}, which has secrets in it", f"chmod 600 {ENV_FILE}")


async def check_users(context: Context) -> AsyncIterator[Finding]:
    """Look at what a user's id is believed by; whether Open WebUI has the same secret, nobody can be asked."""
    settings = context.settings
    secret = settings.open_webui_jwt_secret
    if secret is None:
        if os.environ.get(JWT_SECRET) == "":
            yield broken(USERS, f"{JWT_SECRET} is set, and empty: no signature is asked for", "openssl rand -hex 32")
        else:
            yield unset(USERS, "whoever has a key says for whom they ask", f"set {JWT_SECRET} where that is too little")
        return
    value = secret.get_secret_value()
    if settings.api_key and settings.api_key.get_secret_value() == value:
        yield broken(USERS, f"{JWT_SECRET} is the API key: every client can sign for anybody", "openssl rand -hex 32")
    elif len(set(value)) < LEAST_CHARACTERS:
        yield broken(USERS, f"{JWT_SECRET} can be guessed", "openssl rand -hex 32 makes one")
    elif not settings.has_key:
        yield unset(USERS, "Open WebUI signs for them, and no key is asked for", "callboard key")
    else:
        yield well(USERS, "Open WebUI signs for them, where FORWARD_USER_INFO_HEADER_JWT_SECRET is the same there")
