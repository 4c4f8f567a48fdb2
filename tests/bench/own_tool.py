"""
title: Reader
"""

import asyncio
import os
import pathlib
import time

CHARS = 0  # the benchmark writes its own number in here


class Tools:
    """A tool of Open WebUI itself, beside which Callboard's calls are measured."""

    async def read_file(self, path: str) -> str:
        """
        Read a file.
        :param path: Where it lies.
        """
        return f"result {int(path.rpartition('/')[2]):04d} ".ljust(CHARS, "x")

    async def wait(self, step: int) -> str:
        """
        Wait a while.
        :param step: Its number.
        """
        await asyncio.sleep(0.5)
        (pathlib.Path(os.environ["CALLBOARD_BENCH_NOTES"]) / f"ended_{step}").write_text(repr(time.time()))
        return "Waited."
