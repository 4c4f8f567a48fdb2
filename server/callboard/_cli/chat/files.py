"""Describes the files of tools in a line each, and saves them in a folder."""

import mimetypes
import re
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain, count
from pathlib import Path, PurePosixPath

from rich.filesize import decimal

from callboard._cli.chat.visible import make_line
from callboard.data_urls import content_type_of, count_bytes, read_data_url

_SERVER_PATH = re.compile(r"/v1/runs/[\w-]+/files/[\w-]+", re.ASCII)
_MAX_NAME_CHARS = 50


def describe_file(file: Mapping[str, object], server_url: str) -> str:
    """Return a line about a file: its name, its type, its size if known, and its URL."""
    url = str(file.get("url") or "")
    size = file.get("size") or count_bytes(url)
    kind = str(file.get("content_type") or content_type_of(url) or file.get("type") or "file")
    about = f"{kind}, {decimal(size)}" if isinstance(size, int) else kind
    if file.get("dropped"):
        place = f"  not available: {file['dropped']}"
    elif url.startswith("data:") or (_SERVER_PATH.fullmatch(url) and not server_url):
        # A browser cannot open this URL.
        place = ""
    else:
        place = f"  {server_url if url.startswith('/') else ''}{url}"
    return make_line(f"{file.get('name') or 'file'} ({about}){place}")


async def read_file(file: Mapping[str, object], fetch: Callable[[str], Awaitable[bytes]]) -> bytes | None:
    """Return the content of a file; None if the file is neither on the server nor in a data URL.

    `fetch` reads a file of the server. Raises the errors of `fetch`, and `ValueError` for an invalid data URL.
    """
    url = str(file.get("url") or "")
    if _SERVER_PATH.fullmatch(url):
        return await fetch(url)
    return read_data_url(url).content if url.startswith("data:") else None


def save_file(file: Mapping[str, object], content: bytes, folder: Path) -> Path:
    """Write a file into a folder under an unused name, and return its path. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    stem, suffix = _choose_name(file)
    names = chain([f"{stem}{suffix}"], (f"{stem}-{number}{suffix}" for number in count(2)))
    while True:
        path = folder / next(names)
        try:
            # The mode "x" neither overwrites a file nor follows a link of that name.
            with path.open("xb") as new:
                new.write(content)
        except FileExistsError:
            continue
        return path


def _choose_name(file: Mapping[str, object]) -> tuple[str, str]:
    """Return the file's name without its suffix, and the suffix. They never contain a folder."""
    given = make_line(str(file.get("name") or "")).replace("\\", "/")
    name = Path(PurePosixPath(given).name.lstrip(".") or "file")
    kind = str(file.get("content_type") or content_type_of(str(file.get("url"))) or "")
    suffix = name.suffix or mimetypes.guess_extension(kind) or ""
    return name.stem[:_MAX_NAME_CHARS], suffix[:_MAX_NAME_CHARS]
