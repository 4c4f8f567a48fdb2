"""Files of tools: as a line says what they are, and as they are kept in a folder."""

import mimetypes
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

from callboard._cli.chat.visible import make_line
from callboard._data_urls import content_type_of, count_bytes, read_data_url

Fetch = Callable[[str], Awaitable[bytes]]

_OF_SERVER = re.compile(r"/v1/runs/[\w-]+/files/[\w-]+", re.ASCII)
_UNITS = ("bytes", "KiB", "MiB", "GiB")
_MAX_NAME_CHARS = 50


def describe_file(file: Mapping[str, object], server_url: str = "") -> str:
    """Return what a file is, in one line: its name, its type, its size where that is known, and where it is."""
    url = str(file.get("url") or "")
    size = file.get("size") if isinstance(file.get("size"), int) else count_bytes(url)
    kind = str(file.get("content_type") or content_type_of(url) or file.get("type") or "file")
    about = ", ".join(filter(None, (kind, _write_size(size) if isinstance(size, int) else "")))
    if file.get("dropped"):
        where = f"  not kept: {file['dropped']}"
    elif url.startswith("data:") or (_OF_SERVER.fullmatch(url) and not server_url):
        # No address that anybody could open.
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
    """Return what is in a file, None for one that is elsewhere on the web.

    Raises `ValueError` for one that cannot be read, and what `fetch` raises.
    """
    url = str(file.get("url") or "")
    if _OF_SERVER.fullmatch(url):
        return await fetch(url)
    return read_data_url(url).content if url.startswith("data:") else None


def keep_file(file: Mapping[str, object], content: bytes, folder: Path) -> Path:
    """Write a file into a folder, beside what is there, and return where; raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = _names(file)
    while True:
        path = folder / next(names)
        try:
            # Nothing that is there is written over, and no link of that name followed.
            with path.open("xb") as new:
                new.write(content)
        except FileExistsError:
            continue
        return path


def _names(file: Mapping[str, object]) -> Iterator[str]:
    """Yield names for a file, one after another until one is free. A tool's word for it leads out of no folder."""
    given = make_line(str(file.get("name") or "file")).replace("\\", "/").rpartition("/")[2].lstrip(".")
    stem, _, ending = (given or "file").rpartition(".")
    if not stem:
        stem = ending
        kind = str(file.get("content_type") or content_type_of(str(file.get("url"))) or "")
        ending = (mimetypes.guess_extension(kind) or "").lstrip(".")
    stem = stem[:_MAX_NAME_CHARS]
    suffix = f".{ending[:_MAX_NAME_CHARS]}" if ending else ""
    yield f"{stem}{suffix}"
    for number in count(2):
        yield f"{stem}-{number}{suffix}"
