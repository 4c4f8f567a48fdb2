"""Checks of access to the server: its keys, the signatures of users, and the permissions of the files with secrets."""

import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from callboard._cli.doctor.settings import Context
from callboard._named_keys import read_named_keys
from callboard._private_files import OTHERS
from callboard.settings import ENV_FILE, Settings, secrets_in

JWT_SECRET = "CALLBOARD_OPEN_WEBUI_JWT_SECRET"  # noqa: S105 - the name of a setting
NAMES_SHOWN = 5
MIN_DIFFERENT_CHARS = 8
"""A random secret almost always has at least this many different characters. A repeated `changeme` has fewer."""


async def check_keys(context: Context) -> AsyncIterator[str]:
    """Check the key and the file of named keys, and warn if other users can read a `.env` with secrets."""
    settings = context.settings
    may_others_read = ENV_FILE.is_file() and ENV_FILE.stat().st_mode & OTHERS
    text = ENV_FILE.read_text(encoding="utf-8", errors="replace") if may_others_read else ""
    if any(secret in text for secret in secrets_in(context.variables)):
        yield f"– keys: others can read {ENV_FILE}, which contains secrets → chmod 600 {ENV_FILE}"
    if not settings.has_key:
        yield "– keys: none is set: every program on this machine may use the server → callboard key"
    elif settings.api_keys_file is None:
        yield "✓ keys: one, without a name"
    else:
        for line in _examine_file(settings.api_keys_file.expanduser(), settings):
            yield line


def _examine_file(file: Path, settings: Settings) -> Iterator[str]:
    names = [key.name for key in read_named_keys(file)]
    if names:
        unnamed = " and one without a name" if settings.api_key else ""
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        yield f"✓ keys: {len(names)} with names{unnamed}: {shown}"
    elif settings.api_key:
        yield f"– keys: one without a name, and none in {file} → callboard key --add NAME"
    else:
        yield f"✗ keys: there is no key in {file}: every request is refused → callboard key --add NAME"
    mode = file.parent.stat().st_mode
    # In a sticky folder, such as /tmp, only the owner of a file can replace it.
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        yield f"✗ keys: others can replace {file} by another file → chmod go-w {file.parent}"
    if unknown := sorted(set(settings.inspect_keys) - set(names)):
        yield f"✗ keys: CALLBOARD_INSPECT_KEYS names unknown keys: {', '.join(unknown)} → callboard key --list"


async def check_users(context: Context) -> AsyncIterator[str]:
    """Check the secret with which Open WebUI signs users. Whether Open WebUI has the same secret cannot be checked."""
    settings = context.settings
    secret = settings.open_webui_jwt_secret.get_secret_value() if settings.open_webui_jwt_secret else None
    if secret is None and os.environ.get(JWT_SECRET) == "":
        yield f"✗ users: {JWT_SECRET} is set but empty, so no signature is required → openssl rand -hex 32"
    elif secret is None:
        yield f"– users: a client with a key may act for any user → to prevent that, set {JWT_SECRET}"
    elif settings.api_key and settings.api_key.get_secret_value() == secret:
        yield f"✗ users: {JWT_SECRET} equals the API key, so every client can sign for any user → openssl rand -hex 32"
    elif len(set(secret)) < MIN_DIFFERENT_CHARS:
        yield f"✗ users: {JWT_SECRET} can be guessed → openssl rand -hex 32"
    elif not settings.has_key:
        yield "– users: Open WebUI signs for them, but no key is set → callboard key"
    else:
        yield "✓ users: Open WebUI signs for them, if FORWARD_USER_INFO_HEADER_JWT_SECRET is the same there"
