"""Checks of who may use the server: keys, signatures of users, and who can read or replace the files of both."""

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
"""A random secret nearly always has as many different characters; `changeme`, repeated, has not."""


async def check_keys(context: Context) -> AsyncIterator[str]:
    """Check the key, the file of named keys, and that others cannot read a `.env` with secrets."""
    settings = context.settings
    may_others_read = ENV_FILE.is_file() and ENV_FILE.stat().st_mode & OTHERS
    text = ENV_FILE.read_text(encoding="utf-8", errors="replace") if may_others_read else ""
    if any(secret in text for secret in secrets_in(context.variables)):
        yield f"– keys: others can read {ENV_FILE}, which has secrets in it → chmod 600 {ENV_FILE}"
    if not settings.has_key:
        yield "– keys: none is set: every program of this machine may use the server → callboard key"
    elif settings.api_keys_file is None:
        yield "✓ keys: one, without a name"
    else:
        for line in _examine_file(settings.api_keys_file.expanduser(), settings):
            yield line


def _examine_file(file: Path, settings: Settings) -> Iterator[str]:
    names = [key.name for key in read_named_keys(file)]
    if names:
        beside = " beside the one without" if settings.api_key else ""
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        yield f"✓ keys: {len(names)} with names{beside}: {shown}"
    elif settings.api_key:
        yield f"– keys: one without a name, and none in {file} → callboard key --add NAME"
    else:
        yield f"✗ keys: there is none in {file}: every request is refused → callboard key --add NAME"
    mode = file.parent.stat().st_mode
    # In a sticky folder, such as /tmp, only the owner of a file can replace it.
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        yield f"✗ keys: others can replace {file} by another file → chmod go-w {file.parent}"
    if unknown := sorted(set(settings.inspect_keys) - set(names)):
        yield f"✗ keys: CALLBOARD_INSPECT_KEYS names unknown keys: {', '.join(unknown)} → callboard key --list"


async def check_users(context: Context) -> AsyncIterator[str]:
    """Check the secret with which Open WebUI signs users; Open WebUI cannot be asked whether it has the same."""
    settings = context.settings
    secret = settings.open_webui_jwt_secret.get_secret_value() if settings.open_webui_jwt_secret else None
    if secret is None and os.environ.get(JWT_SECRET) == "":
        yield f"✗ users: {JWT_SECRET} is set, and empty: no signature is required → openssl rand -hex 32"
    elif secret is None:
        yield f"– users: a client with a key may act for any user → set {JWT_SECRET} if that is too little"
    elif settings.api_key and settings.api_key.get_secret_value() == secret:
        yield f"✗ users: {JWT_SECRET} is the API key: every client can sign for any user → openssl rand -hex 32"
    elif len(set(secret)) < MIN_DIFFERENT_CHARS:
        yield f"✗ users: {JWT_SECRET} can be guessed → openssl rand -hex 32 makes one"
    elif not settings.has_key:
        yield "– users: Open WebUI signs for them, and no key is set → callboard key"
    else:
        yield "✓ users: Open WebUI signs for them, if FORWARD_USER_INFO_HEADER_JWT_SECRET is the same there"
