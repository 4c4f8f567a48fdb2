"""Runs a reader in a child process, one at a time for each user."""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio.lowlevel import RunVar
from pydantic import TypeAdapter, ValidationError

from callboard.errors import ToolError, ToolTimeout
from callboard.reading.formats import Download, Page

READ_SECONDS = 40.0
"""The time limit of one reading, including the start of its process."""

MAX_PROCESSES = 3

Read = TypeVar("Read")


async def read_apart(reader: Callable[..., Read], *arguments: Any, into: type[Read], name: str, user: str) -> Read:
    """Call `reader` with `arguments` in a process with limits on time and memory, and return the result.

    `into` is the dataclass that `reader` returns; its fields must have JSON types. `name` is the name of the file or
    page in error messages. Readings of one user run one after another, and at most `MAX_PROCESSES` run at a time.
    Cancelling the caller kills the process.

    Raises `ToolError` if the bytes cannot be read, and `ToolTimeout` after `READ_SECONDS`.
    """
    task = pickle.dumps((reader, arguments, name))
    async with _take_turn(user):
        answer = await _ask_child(task, name)
    try:
        result = _ANSWER.validate_json(answer)
        if "read" in result:
            return TypeAdapter(into).validate_python(result["read"])
    except ValidationError:
        # The process was killed by a limit of the system, or the parser crashed.
        raise ToolError(f"{name} cannot be read within the limits of memory and time: use a smaller copy.") from None
    raise ToolError(str(result["failed"]))


_ANSWER = TypeAdapter(dict[str, Any])


async def read_web_page(page: Download, *, user: str = "") -> Page:
    """Return the title and the text of a downloaded page. Needs the extra `web`.

    The pages of one user (`user` is an id) are read one after another. Raises `ToolError` if the page is not text or
    cannot be read within the limits of memory, and `ToolTimeout` if that takes too long.
    """
    # Imported here because it belongs to an extra.
    from callboard.reading.pages import read_page

    return await read_apart(read_page, page, into=Page, name=page.url, user=user)


async def _ask_child(task: bytes, name: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "callboard.reading.child",
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        # The server's environment contains keys, so the child gets a new one.
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LANG": "C.UTF-8"},
    )
    try:
        async with asyncio.timeout(READ_SECONDS):
            answer, _ = await process.communicate(task)
    except TimeoutError:
        raise ToolTimeout(f"{name} takes more than {READ_SECONDS:g} s to read: use a smaller copy.") from None
    finally:
        if process.returncode is None:
            process.kill()
            with anyio.CancelScope(shield=True):
                # Also reads the rest of the output, because an unread pipe keeps its transport open.
                await process.communicate()
    return answer


class _Limits:
    """The limits on concurrent readings in one event loop."""

    def __init__(self) -> None:
        self.processes = anyio.CapacityLimiter(MAX_PROCESSES)
        self.users: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()


_limits: RunVar[_Limits] = RunVar("callboard_reading_limits")


@asynccontextmanager
async def _take_turn(user: str) -> AsyncIterator[None]:
    try:
        limits = _limits.get()
    except LookupError:
        limits = _Limits()
        _limits.set(limits)
    lock = limits.users.setdefault(user, anyio.Lock())
    async with lock, limits.processes:
        yield
