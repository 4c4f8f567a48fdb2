"""The child process of `read_apart`: `python -m callboard.reading.child` calls one reader and exits.

Standard input is the pickled function and its arguments, from the trusted parent. Standard output is JSON, because the
output of a parser of untrusted bytes must not be unpickled: `{"read": …}` or `{"failed": "error message"}`.
"""

import json
import os
import pickle
import resource
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from callboard.errors import ToolError
from callboard.text import storable

MEMORY_BYTES = 768 * 1024 * 1024
CPU_SECONDS = 20
NICENESS = 10


def main() -> int:
    """Call the function on standard input and write its result. Errors of the function become `failed`."""
    answer_to = os.dup(sys.stdout.fileno())
    # Output that a library prints must not mix with the answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.nice(NICENESS)
    function, arguments, name = pickle.load(sys.stdin.buffer)  # noqa: S301 # from the parent, which is trusted
    # The limits are set after the arguments are read, so that the parser has all of the memory.
    _set_limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _set_limit(resource.RLIMIT_CPU, CPU_SECONDS)
    answer: dict[str, Any]
    try:
        answer = {"read": asdict(function(*arguments))}
    except ToolError as error:
        answer = {"failed": storable(str(error))}
    except MemoryError:
        answer = {"failed": f"{name} takes too much memory to read: use a smaller copy."}
    except Exception as error:  # noqa: BLE001 # parsers raise anything on bytes that were made to break them
        answer = {"failed": f"{name} cannot be read ({type(error).__name__}): use another copy."}
    with os.fdopen(answer_to, "w", encoding="utf-8") as out:
        json.dump(answer, out)
    return 0


def _set_limit(resource_id: int, limit: int) -> None:
    _, hard = resource.getrlimit(resource_id)
    # macOS has a limit of memory but refuses to set it.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource_id, (limit, hard if hard != resource.RLIM_INFINITY else limit))


if __name__ == "__main__":
    sys.exit(main())
