"""Files of tools: describes them in a line, and saves them in a folder."""

import mimetypes
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

from callboard._cli.chat.visible import make_line
from callboard._data_urls import content_type_of, count_bytes, read_data_url

Fetch = Callable[[str], Awaitable[bytes]]

_SERVER_PATH = re.compile(r"/v1/runs/[\w-]+/files/[\w-]+", re.ASCII)
_UNITS = ("bytes", "KiB", "MiB", "GiB")
_MAX_NAME_CHARS = 50


def describe_file(file: Mapping[str, object], server_url: str = "") -> str:
    """Return a line about a file: its name, its type, its size if known, and its address."""
    url = str(file.get("url") or "")
    size = file.get("size") if isinstance(file.get("size"), int) else count_bytes(url)
    kind = str(file.get("content_type") or content_type_of(url) or file.get("type") or "file")
    about = ", ".join(filter(None, (kind, _write_size(size) if isinstance(size, int) else "")))
    if file.get("dropped"):
        where = f"  not available: {file['dropped']}"
    elif url.startswith("data:") or (_SERVER_PATH.fullmatch(url) and not server_url):
        # A browser could not open the address.
        where = ""
    else:
        where = f"  {server_url if url.startswith('/') else ''}{url}"
    return make_line(f"{file.get('name') or 'file'} ({about}){where}")


def _write_size(size_bytes: int) -> str:
    size = float(size_bytes)
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} {_UNITS[unit]}" if size >= 10 or not unit else f"{size:.1f} {_UNITS[unit]}"


async def read_file(file: Mapping[str, object], fetch: Fetch) -> bytes | None:
    """Return the content of a file; None for a file elsewhere on the web.

    Raises `ValueError` if its data URL cannot be read, and the errors of `fetch`.
    """
    url = str(file.get("url") or "")
    if _SERVER_PATH.fullmatch(url):
        return await fetch(url)
    return read_data_url(url).content if url.startswith("data:") else None


def save_file(file: Mapping[str, object], content: bytes, folder: Path) -> Path:
    """Write a file into a folder under a name that is free, and return its path; raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = _yield_names(file)
    while True:
        path = folder / next(names)
        try:
            # "x" neither overwrites a file nor follows a link of that name.
            with path.open("xb") as new:
                new.write(content)
        except FileExistsError:
            continue
        return path


def _yield_names(file: Mapping[str, object]) -> Iterator[str]:
    """Yield names for a file without end, the tool's own first. They contain no folder, whatever the tool wrote."""
    wanted = make_line(str(file.get("name") or "file")).replace("\\", "/").rpartition("/")[2].lstrip(".")
    stem, _, ending = (wanted or "file").rpartition(".")
    if not stem:
        stem = ending
        kind = str(file.get("content_type") or content_type_of(str(file.get("url"))) or "")
        ending = (mimetypes.guess_extension(kind) or "").lstrip(".")
    stem = stem[:_MAX_NAME_CHARS]
    suffix = f".{ending[:_MAX_NAME_CHARS]}" if ending else ""
    yield f"{stem}{suffix}"
    for number in count(2):
        yield f"{stem}-{number}{suffix}"
