"""Files of tools: describes them in a line, and saves them in a folder."""

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
    """Return a line about a file: its name, its type, its size if known, and its address."""
    url = str(file.get("url") or "")
    size = file.get("size") or count_bytes(url)
    kind = str(file.get("content_type") or content_type_of(url) or file.get("type") or "file")
    about = f"{kind}, {decimal(size)}" if isinstance(size, int) else kind
    if file.get("dropped"):
        where = f"  not available: {file['dropped']}"
    elif url.startswith("data:") or (_SERVER_PATH.fullmatch(url) and not server_url):
        # A browser could not open the address.
        where = ""
    else:
        where = f"  {server_url if url.startswith('/') else ''}{url}"
    return make_line(f"{file.get('name') or 'file'} ({about}){where}")


async def read_file(file: Mapping[str, object], fetch: Callable[[str], Awaitable[bytes]]) -> bytes | None:
    """Return the content of a file; None for a file elsewhere on the web.

    `fetch` reads a file of the server. Raises its errors, and `ValueError` if a data URL cannot be read.
    """
    url = str(file.get("url") or "")
    if _SERVER_PATH.fullmatch(url):
        return await fetch(url)
    return read_data_url(url).content if url.startswith("data:") else None


def save_file(file: Mapping[str, object], content: bytes, folder: Path) -> Path:
    """Write a file into a folder under a name that is free, and return its path. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    stem, ending = _choose_name(file)
    names = chain([f"{stem}{ending}"], (f"{stem}-{number}{ending}" for number in count(2)))
    while True:
        path = folder / next(names)
        try:
            # "x" neither overwrites a file nor follows a link of that name.
            with path.open("xb") as new:
                new.write(content)
        except FileExistsError:
            continue
        return path


def _choose_name(file: Mapping[str, object]) -> tuple[str, str]:
    """Return the tool's name for a file and its ending. They contain no folder, whatever the tool wrote."""
    given = make_line(str(file.get("name") or "")).replace("\\", "/")
    name = Path(PurePosixPath(given).name.lstrip(".") or "file")
    kind = str(file.get("content_type") or content_type_of(str(file.get("url"))) or "")
    ending = name.suffix or mimetypes.guess_extension(kind) or ""
    return name.stem[:_MAX_NAME_CHARS], ending[:_MAX_NAME_CHARS]
