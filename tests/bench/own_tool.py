"""
title: Reader
"""

CHARS = 0  # the benchmark writes its own number in here


class Tools:
    """A tool of Open WebUI itself, beside which Callboard's calls are measured."""

    async def read_file(self, path: str) -> str:
        """
        Read a file.
        :param path: Where it lies.
        """
        return f"result {int(path.rpartition('/')[2]):04d} ".ljust(CHARS, "x")
