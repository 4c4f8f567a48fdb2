"""Watchdog: logs which tool blocks the event loop, and at which line. A blocked loop stops every run.

An `async` function blocks it if it sleeps, computes or uses the network without `await`. The server cannot end such a
function, but its author can correct it. The watchdog runs in a thread, because nothing on a blocked loop runs.
"""

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextvars import Context
from types import FrameType, TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import structlog

LIMIT_SECONDS = 1.0
REPEAT_SECONDS = 60.0
MAX_FRAMES = 20
MAX_PLACES = 100

_BOUND = structlog.contextvars.STRUCTLOG_KEY_PREFIX

_log = structlog.get_logger(__name__)


class Watchdog:
    """Watches the current event loop while entered, and logs if it is blocked for longer than `limit_seconds`.

    `loop_blocked` has the stack, and the tool, call and run if they are known; `loop_free` has the duration. The same
    place is logged once in `repeat_seconds`.
    """

    def __init__(self, limit_seconds: float = LIMIT_SECONDS, repeat_seconds: float = REPEAT_SECONDS) -> None:
        self._limit_seconds = limit_seconds
        self._repeat_seconds = repeat_seconds
        self._logged_at: dict[str, float] = {}
        self._suppressed = 0
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        # Not joined, because it may wait for this thread's loop.
        self._stopping.set()

    def _watch(self) -> None:
        while not self._stopping.wait(self._limit_seconds):
            answered = threading.Event()
            asked_at = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                return  # the loop is closed
            if answered.wait(self._limit_seconds) or self._stopping.is_set():
                continue
            names = self._report()
            while not answered.wait(self._limit_seconds):
                if self._stopping.is_set():
                    return
            if names:
                _log.warning("loop_free", seconds=round(time.monotonic() - asked_at, 1), **names)

    def _report(self) -> dict[str, Any] | None:
        """Log what blocks the loop; return its names, or None if the place was logged a short time ago."""
        frame = _find_frame(self._loop_thread)
        stack = traceback.extract_stack(frame, limit=None)[-MAX_FRAMES:] if frame else []
        names = _find_names(asyncio.current_task(self._loop))
        place = f"{names.get('tool')} {stack[-1].filename}:{stack[-1].name}" if stack else str(names.get("tool"))
        now = time.monotonic()
        if now - self._logged_at.get(place, -self._repeat_seconds) < self._repeat_seconds:
            self._suppressed += 1
            return None
        if len(self._logged_at) >= MAX_PLACES:
            self._logged_at.clear()
        self._logged_at[place] = now
        _log.warning(
            "loop_blocked",
            hint="no request is answered until the call returns: use await, or make the tool a plain function, which "
            "runs in a thread",
            stack="\n".join(f"{frame.filename}:{frame.lineno} {frame.name}: {frame.line}" for frame in stack),
            suppressed=self._suppressed,
            **names,
        )
        self._suppressed = 0
        return names


_known: WeakKeyDictionary[asyncio.Task[Any], Mapping[str, Any]] = WeakKeyDictionary()


def remember_task() -> None:
    """Remember the tool and the run of the current task: the values that are bound to its log lines now."""
    if (task := asyncio.current_task()) is not None:
        _known[task] = dict(structlog.contextvars.get_contextvars())


def _find_frame(thread_id: int) -> FrameType | None:
    """Return the newest frame of a thread."""
    # Before 3.12, Python deadlocks if it collects garbage in this call: https://github.com/python/cpython/issues/106883
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread_id)
    finally:
        if is_enabled:
            gc.enable()


def _find_names(task: asyncio.Task[Any] | None) -> dict[str, Any]:
    """Return the tool, call and run of a task; for tasks that a tool starts itself, only from Python 3.12 on."""
    if task is None:
        return {}
    bound = _known.get(task)
    if bound is None and hasattr(task, "get_context"):
        # The context cannot be entered from this thread, so structlog's variables are read by their names.
        context: Context = task.get_context()
        found = ((variable.name, value) for variable, value in context.items())
        bound = {name.removeprefix(_BOUND): value for name, value in found if name.startswith(_BOUND)}
    return {"task": task.get_name(), **(bound or {})}
