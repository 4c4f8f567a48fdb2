"""Puts faults into the sources, one at a time, and runs the tests: each fault should make a test fail.

    .venv/bin/python -m tests.mutants [--only NAME …] [--area] [pytest arguments …]

The faults are put into a clone of the last commit. For each, the tests of its area run first, and all tests that
pytest selects with the given arguments only if none of those fails; `--area` leaves the latter out. Prints a table in
Markdown. Exits with 1 if a fault was not found. All faults together take minutes to hours.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("server", "shared", ".")
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)*(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)

RUNS = ("tests/runs/test_recorder.py", "tests/recordings", "tests/runs")
HISTORY = ("tests/history",)
PIPE = ("tests/pipe",)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: the line `before` of the file at `path` becomes `after`.

    `area`: files and folders of tests that are run first, one after another.
    """

    name: str
    path: str
    before: str
    after: str
    area: tuple[str, ...]


FAULTS = (
    # Formats.
    Fault(
        "no text is kept before the place that is read",
        "server/callboard_formats/text_buffer.py",
        "cut = read - self.base - LOOK_BACK_CHARS",
        "cut = read - self.base",
        ("tests/formats/test_corpus.py", "tests/formats"),
    ),
    Fault(
        "an object within the arguments begins their preview anew",
        "server/callboard_formats/json_text.py",
        'is_arguments = self._depth == 1 and bracket == "{" and self._key in ARGUMENTS_KEYS and self._value_from',
        'is_arguments = bracket == "{" and self._key in ARGUMENTS_KEYS and self._value_from',
        ("tests/formats/test_scanner.py", "tests/loop", "tests/formats"),
    ),
    Fault(
        "1 counts as true where a schema lists its values",
        "server/callboard_formats/conversion.py",
        "if isinstance(one, bool) is not isinstance(other, bool):",
        "if isinstance(one, bool) and not isinstance(other, bool):",
        ("tests/formats/test_gate.py", "tests/formats"),
    ),
    Fault(
        "one element of an array's name becomes a list in a list",
        "server/callboard_formats/minimax.py",
        "if len(texts) > 1 and name in lists:",
        "if len(texts) > 0 and name in lists:",
        ("tests/formats/test_corpus.py", "tests/formats"),
    ),
    Fault(
        "a result that the model imagines after its final answer is shown",
        "server/callboard_formats/scanner.py",
        "is_over = self._output.has_call or (self._answering and buffer.at_line_start())",
        "is_over = self._output.has_call",
        ("tests/formats/test_react.py", "tests/formats"),
    ),
    Fault(
        "the closing back-ticks of a fence open a quotation",
        "server/callboard_formats/quotation.py",
        "is_mark = buffer.position > max(buffer.boundary, self._fence_end) and bool(before) and before in QUOTES",
        "is_mark = buffer.position > buffer.boundary and bool(before) and before in QUOTES",
        ("tests/formats/test_corpus.py", "tests/formats"),
    ),
    Fault(
        "two native calls of one tool are joined if the endpoint numbers both 0",
        "server/callboard/models/call_joiner.py",
        "return is_other or (restarts and _is_object(self.arguments) and not is_same)",
        "return is_other",
        ("tests/formats/test_native.py", "tests/formats", "tests/loop"),
    ),
    Fault(
        "an empty line in a list's fenced code ends the reading of fences",
        "server/callboard_formats/markdown.py",
        "if fence.before and line.strip(_BLANKS) and not fence.contains(line):",
        "if fence.before and not fence.contains(line):",
        ("tests/formats/test_rescuing.py", "tests/formats", "tests/loop"),
    ),
    # Recorder and log.
    Fault(
        "a call's result is stored under the agent's own id",
        "server/callboard/runs/recorder.py",
        "self._rows.end_call(call.tool_call_id, output, code, duration_ms) if self._rows else [],",
        "self._rows.end_call(event.tool_call_id, output, code, duration_ms) if self._rows else [],",
        RUNS,
    ),
    Fault(
        "text that is held as the beginning of a secret outlives a rewind",
        "server/callboard/runs/text_writer.py",
        "self._held.clear()",
        "pass",
        RUNS,
    ),
    Fault(
        "the oldest event of a log counts as dropped",
        "server/callboard/runs/log.py",
        "return after + 1 < self._first_seq",
        "return after + 1 <= self._first_seq",
        ("tests/runs/test_log.py", "tests/runs"),
    ),
    Fault(
        "two calls with one announced id get the same id",
        "server/callboard/runs/call_tracker.py",
        'call_id = self._unstarted.pop(agent_call_id, "") or self.ids.claim(agent_call_id)',
        'call_id = self._unstarted.get(agent_call_id, "") or self.ids.claim(agent_call_id)',
        RUNS,
    ),
    Fault(
        "arguments of two calls that are written side by side are joined",
        "server/callboard/runs/text_writer.py",
        "for _, neighbours in groupby(delayed, key=lambda event: event.stream):",
        "for _, neighbours in groupby(delayed, key=lambda event: event.type):",
        RUNS,
    ),
    # Replay.
    Fault(
        "two calls without an id get the same answer",
        "server/callboard/_history/replay.py",
        "content = contents[call_id].popleft() if contents[call_id] else None",
        "content = contents[call_id][0] if contents[call_id] else None",
        HISTORY,
    ),
    Fault(
        "an empty message of the assistant stays if a question stands before it",
        "server/callboard/_history/endpoint_rules.py",
        'elif role == "assistant" and _is_empty(message):',
        'elif role == "assistant" and _is_empty(message) and before["role"] != "user":',
        HISTORY,
    ),
    Fault(
        "results of the newest turn are shortened",
        "server/callboard/_history/token_limit.py",
        "for turn in turns[:-1]:",
        "for turn in turns:",
        HISTORY,
    ),
    Fault(
        "of two equal answers the later turn is found twice",
        "server/callboard/_history/turns.py",
        "if count := bisect_left(numbers, end):",
        "if count := bisect_left(numbers, end + 1):",
        HISTORY,
    ),
    # Pipe.
    Fault(
        "Open WebUI's variables in a result are not escaped",
        "pipe/callboard_pipe.py",
        'return html.escape(text).replace("{{", "&#123;&#123;")',
        "return html.escape(text)",
        PIPE,
    ),
    Fault(
        "the last event before a cut is delivered twice",
        "pipe/callboard_pipe.py",
        "if seq <= self._last_seq:",
        "if seq < self._last_seq:",
        PIPE,
    ),
    Fault(
        "status lines that come at once are shown twice",
        "pipe/callboard_pipe.py",
        "return [*steps[:half], *steps[half:][-half:], last]",
        "return [*steps[:half], *steps[-half:], last]",
        PIPE,
    ),
    Fault(
        "a rewind does not cut the text that a call has ended in",
        "pipe/callboard_pipe.py",
        "self._last_kept = replace(self.pieces[-1]) if self.pieces else None",
        "self._last_kept = self.pieces[-1] if self.pieces else None",
        PIPE,
    ),
    Fault(
        "an open call counts as final if its neighbour has ended",
        "pipe/callboard_pipe.py",
        "is_final = is_final and transcript.is_final(part)",
        "is_final = transcript.is_final(part)",
        PIPE,
    ),
    # Storage.
    Fault(
        "a row is not written if the commit before it was not confirmed",
        "server/callboard/storage/sql/turn_writer.py",
        "if change.number >= rows_there:",
        "if change.number > rows_there:",
        ("tests/storage/test_lost_answers.py", "tests/storage"),
    ),
    Fault(
        "of a long chat only the first page is read",
        "server/callboard/storage/sql/database.py",
        "if len(rows) < ROWS_PER_PAGE:",
        "if len(rows) <= ROWS_PER_PAGE:",
        ("tests/storage/test_turn_rows.py", "tests/storage"),
    ),
    Fault(
        "a run that is handed over counts as a crash",
        "server/callboard/storage/sql/stored_runs.py",
        "losses = runs.c.losses + case((runs.c.owner.in_([UNOWNED, self._server_id]), 0), else_=1)",
        "losses = runs.c.losses + case((runs.c.owner.in_([self._server_id]), 0), else_=1)",
        ("tests/storage/test_shared_runs.py", "tests/storage"),
    ),
    Fault(
        "late runs are kept beyond their bound",
        "server/callboard/storage/sql/late_records.py",
        "is_too_much = len(ended) > MAX_ENDED or sum(record.size_bytes for record in ended) > MAX_ENDED_BYTES",
        "is_too_much = len(ended) > MAX_ENDED and sum(record.size_bytes for record in ended) > MAX_ENDED_BYTES",
        ("tests/storage/test_late_records.py", "tests/storage"),
    ),
    # Adapters.
    Fault(
        "the user reads the words of a model that a tool asks",
        "server/callboard/frameworks/langgraph/stream.py",
        "if any(path[:length] in self._hooks.tool_nodes for length in range(1, len(path) + 1)):",
        "if any(path[:length] in self._hooks.tool_nodes for length in range(1, len(path))):",
        ("tests/frameworks/test_langgraph.py", "tests/frameworks"),
    ),
    Fault(
        "two calls of one answer with one id stay so",
        "server/callboard/frameworks/openai_agents/model.py",
        "call.call_id = ids[given].popleft()",
        "call.call_id = ids[given][0]",
        ("tests/frameworks/test_conformance.py", "tests/frameworks"),
    ),
    Fault(
        "a team loses the additional input that its author has given",
        "server/callboard/frameworks/agno/messages.py",
        "team_copy.additional_input = [*(team.additional_input or ()), *(messages[:-1] if question else messages)]",
        "team_copy.additional_input = [*(messages[:-1] if question else messages)]",
        ("tests/frameworks/test_agno.py", "tests/frameworks"),
    ),
    Fault(
        "calls of the second round get the ids of the first",
        "server/callboard/frameworks/pydantic_ai/hooks.py",
        "self._ids.clear()",
        "pass",
        ("tests/frameworks/test_conformance.py", "tests/frameworks"),
    ),
)


def insert_fault(source: str, fault: Fault) -> str:
    """Return the source with the fault in it. Raises `ValueError` unless its line is there exactly once."""
    lines = source.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.strip() == fault.before]
    if len(places) != 1:
        raise ValueError(
            f"{fault.path} has the line {fault.before!r} {len(places)} times, not once: "
            f"write the fault {fault.name!r} in tests/mutants.py anew"
        )
    lines[places[0]] = lines[places[0]].replace(fault.before, fault.after)
    return "".join(lines)


class Checkout:
    """A clone of the last commit at `folder`, tested with the packages of this environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.failing_anyway: list[str] = []
        """Tests that failed without a fault too: they are left out from then on."""
        subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
        # In front of this environment, in which the packages are installed as links to their sources.
        path = os.pathsep.join(str(folder / name) for name in SOURCES)
        self._environment = {**os.environ, "PYTHONPATH": path}
        imported = self._run(sys.executable, "-c", "import callboard; print(callboard.__file__)").stdout.strip()
        if not Path(imported).is_relative_to(folder):
            raise RuntimeError(f"Python imports {imported}, not the clone in {folder}: the faults would not be run")

    def find(self, fault: Fault, arguments: list[str], *, only_area: bool) -> str:
        """Return the first test that fails for the fault, "" if none does."""
        parts = [[path] for path in fault.area] + ([] if only_area else [[]])
        return next(filter(None, (self._find_in(fault, [*part, *arguments]) for part in parts)), "")

    def _find_in(self, fault: Fault, selection: list[str]) -> str:
        path = self._folder / fault.path
        source = path.read_text()
        while True:
            path.write_text(insert_fault(source, fault))
            try:
                failed = self._find_failure(*selection, *(f"--deselect={test}" for test in self.failing_anyway))
            finally:
                path.write_text(source)
            if not failed or not self._find_failure(failed):
                return failed
            if failed in self.failing_anyway:
                raise RuntimeError(f"{failed} fails without a fault too and cannot be left out: repair it first")
            self.failing_anyway.append(failed)

    def _find_failure(self, *arguments: str) -> str:
        ended = self._run(*PYTEST, *arguments)
        if ended.returncode == pytest.ExitCode.OK:
            return ""
        found = FIRST_FAILURE.search(ended.stdout)
        if found is None:
            raise RuntimeError(f"pytest ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
        return found[1]

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self._folder, env=self._environment, capture_output=True, text=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help="may be given again")
    parser.add_argument("--area", action="store_true", help="run the tests of the fault's area alone")
    options, arguments = parser.parse_known_args()
    is_each_found = True
    print("| fault | found by | seconds |\n| --- | --- | --: |", flush=True)
    with tempfile.TemporaryDirectory(prefix="callboard-mutants-") as folder:
        checkout = Checkout(Path(folder) / "clone")
        for fault in FAULTS:
            if options.only and fault.name not in options.only:
                continue
            began_at = time.monotonic()
            test = checkout.find(fault, arguments, only_area=options.area)
            is_each_found = is_each_found and bool(test)
            found_by = test.replace("|", "\\|") or "NOT FOUND"
            print(f"| {fault.name} | {found_by} | {time.monotonic() - began_at:.0f} |", flush=True)
    for test in checkout.failing_anyway:
        print(f"\nLeft out, because it fails without a fault too: {test}")
    return 0 if is_each_found else 1


if __name__ == "__main__":
    sys.exit(main())
