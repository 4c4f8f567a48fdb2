"""scripts/trace counts the project's code that one request passes."""

import re
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT, environment


def test_more_code_runs_until_done_than_until_the_first_frame(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "request_trace.py"), "--list"]
    ended = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=True)
    listed, _, counted = ended.stdout.partition("first frame: ")
    before, after = listed.split("--- first frame\n")
    first, done = ([int(number) for number in re.findall(r"\d+", line)] for line in counted.splitlines())
    assert all(0 < fewer < more for fewer, more in zip(first, done, strict=True))
    assert (before.count("\n"), listed.count("\n") - 1) == (first[0], done[0])
    assert "start_run\n" in before
    assert "CallRunner" in after
