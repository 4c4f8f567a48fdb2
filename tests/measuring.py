"""Measures the memory that Python's objects take."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Memory:
    """The bytes that a block has allocated and not freed, and the most that it had at one time."""

    kept_bytes: int = 0
    peak_bytes: int = 0


@contextmanager
def measuring_memory() -> Iterator[Memory]:
    """Yield an object that has the memory of the block after its end."""
    memory = Memory()
    tracemalloc.start()
    try:
        yield memory
        memory.kept_bytes, memory.peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
