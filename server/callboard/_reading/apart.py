"""Reading in a process of its own, one at a time for each user."""

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

READ_SECONDS = 40.0
"""The time that one reading may take, the start of its process included."""

MAX_PROCESSES = 3

Read = TypeVar("Read")


async def read_apart(reader: Callable[..., Read], *arguments: Any, into: type[Read], name: str, user: str) -> Read:
    """Return what `reader` makes of `arguments`, in a process with bounds on its time and memory.

    `into` is the dataclass that `reader` returns, of what JSON has; `name` is what errors call the thing that is read.
    A user's readings wait for each other, and all for `MAX_PROCESSES`. Whoever is cancelled ends the process.

    Raises `ToolError` where it cannot be read, `ToolTimeout` where that takes too long.
    """
    task = pickle.dumps((reader, arguments, name))
    async with _take_turn(user):
        answer = await _ask_child(task, name)
    try:
        said = _ANSWER.validate_json(answer)
        if "read" in said:
            return TypeAdapter(into).validate_python(said["read"])
    except ValidationError:
        # Killed by a bound of the system, or by a fault of the parser.
        raise ToolError(f"{name} cannot be read within the bounds of memory and time: use a smaller copy.") from None
    raise ToolError(str(said["failed"]))


_ANSWER = TypeAdapter(dict[str, Any])


async def _ask_child(task: bytes, name: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "callboard._reading.child",
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        # Nothing of the server's environment: it holds keys.
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
                # Reads what is left too: a pipe that nobody empties keeps its transport open.
                await process.communicate()
    return answer


class _Places:
    """The places of those who read now, in one event loop."""

    def __init__(self) -> None:
        self.processes = anyio.CapacityLimiter(MAX_PROCESSES)
        self.users: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()


_places: RunVar[_Places] = RunVar("callboard_reading_places")


@asynccontextmanager
async def _take_turn(user: str) -> AsyncIterator[None]:
    try:
        places = _places.get()
    except LookupError:
        places = _Places()
        _places.set(places)
    lock = places.users.setdefault(user, anyio.Lock())
    async with lock, places.processes:
        yield
