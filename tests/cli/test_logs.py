"""No log line has a secret, whatever writes the line and whatever contains the secret, and none fills the disk."""

import logging
import os
import pty
import subprocess
import sys

import pytest

from callboard import _logging

SECRET = 'sk-log/4"7-äx'
OTHER = "t0k3n-of-a-run"

PROGRAM = f"""
import logging, structlog
from callboard._logging import set_up_logging
from callboard.redaction import Redaction, current_redaction

KEY, OTHER = {SECRET!r}, {OTHER!r}
server = Redaction([KEY])
set_up_logging("info", server)
log = structlog.get_logger()

def fails(key):
    raise ValueError(f"refused: {{key}} {{OTHER}}")

def write():
    log.info("told", key=KEY, deep={{"list": [KEY, OTHER]}}, raw=KEY.encode())
    logging.getLogger("library").warning("bearer %s %s", KEY, OTHER)
    try:
        fails(KEY)
    except ValueError as error:
        log.exception("failed", error=str(error))
        logging.getLogger("library").exception("it said")

current_redaction.set(Redaction([OTHER], above=server))
write()
current_redaction.set(None)
write()
"""


def logged(*, in_terminal: bool) -> str:
    if not in_terminal:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, text=True, check=True, timeout=60
        ).stderr
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=theirs) as program:
        os.close(theirs)
        pieces = []
        try:
            while piece := os.read(ours, 65536):
                pieces.append(piece)
        except OSError:
            # Linux reports the end of a terminal with this error.
            os.close(ours)
        assert program.wait(60) == 0
    return b"".join(pieces).decode()


@pytest.mark.parametrize("in_terminal", [False, True])
def test_no_line_of_the_log_holds_a_secret_not_even_a_traceback(in_terminal: bool) -> None:
    lines = logged(in_terminal=in_terminal)
    during = lines[: len(lines) // 2]
    after = lines
    assert lines.count("refused: [secret]") >= 4
    assert "sk-log" not in after
    assert OTHER not in during
    # A secret that a run named is replaced in the lines of this run only.
    assert OTHER in after
    # Written twice in the same second.
    assert lines.count("bearer") == 1


def test_an_application_that_configures_no_logging_logs_tracebacks_without_the_values_of_variables() -> None:
    code = (
        "import asyncio, rich, structlog\n"
        "from callboard import Agent, Callboard\n"
        "def fails():\n"
        "    key = '-'.join(['s3c', 'r3t'])\n"
        "    raise ValueError('refused')\n"
        "async def main():\n"
        "    async with Callboard([Agent('clerk')], store=None).asgi().lifespan():\n"
        "        try:\n"
        "            fails()\n"
        "        except ValueError:\n"
        "            structlog.get_logger().exception('failed')\n"
        "asyncio.run(main())"
    )
    logged = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "ValueError: refused" in logged
    assert "s3c-r3t" not in logged


def test_a_record_that_repeats_is_logged_once_a_second_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(_logging, "monotonic", lambda: now)
    throttle = _logging._Throttle()

    def passed(word: str) -> str:
        record = logging.makeLogRecord({"name": "library", "msg": word})
        return record.getMessage() if throttle.filter(record) else ""

    assert [passed(word) for word in ("lost", "lost", "other", "lost")] == ["lost", "", "other", ""]
    now = 1.0
    assert [passed("lost"), passed("lost")] == ["lost (repeated 2 times)", ""]
