"""The labels of ReAct, taken off an answer that is a ReAct transcript as a whole. Pure.

A model that calls tools natively may have learnt ReAct too and answer `Final Answer: 42`, repeat a tool's result as
`Observation: …`, or end with `Action: None`. Such words are scaffolding only where all of the answer has that shape:
in an explanation, a quotation, code or a list of fields they are what the model says, and so they are where the model
was told of them.
"""

import re
from collections.abc import Callable, Sequence

MAX_HELD_CHARS = 16_000
MAX_SPACE_CHARS = 80
MAX_LINE_CHARS = 80
"""The characters of a line by which it is judged; a longer one is no empty action."""
_LABELS = ("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "**Final Answer:**")
_FINAL_ANSWER = re.compile(r"^[ \t]*(?:Final Answer:|\*\*Final Answer:\*\*)[ \t]*\n?", re.MULTILINE)
_LABEL = re.compile(r"^[ \t]*(Thought|Action|Action Input|Observation):[ \t]*", re.MULTILINE)
_NO_ACTION = frozenset({"none", "n/a", "null", "-"})
_NO_INPUT = _NO_ACTION | {"", "{}"}
_EMPTY_LINES = tuple(
    f"{label}: {nothing}"
    for label, nothings in (("action", _NO_ACTION), ("action input", _NO_INPUT))
    for nothing in sorted(nothings)
)
_FIELD = re.compile(r"\s*(?:[-*+>|]\s*)?[*_]*\w[\w -]{0,40}[*_]*:")
_TOLD = re.compile(r"\bReAct\b|final answer", re.IGNORECASE)


class Scaffold:
    """A reader of the text of one answer; `told` gives the texts that the model was sent, its own answers left out."""

    def __init__(self, told: Callable[[], Sequence[str]]) -> None:
        self._told = told
        self._held = ""
        self._reads = self._begin
        # Lines that may be an empty action at the answer's end, and the beginning of one more.
        self._lines: list[str] = []
        self._begun = ""
        # What that end is judged by: the beginnings of the line that is being shown and of the last whole one that is
        # not blank, and whether a fence is open.
        self._line = ""
        self._last_line = ""
        self._is_in_fence = False

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that can be shown now."""
        self._held += text
        return self._reads()

    def finish(self) -> tuple[str, str]:
        """Return what was held back, without the labels."""
        held = self._held
        self._held = ""
        if self._reads == self._begin:
            return "", held
        if self._reads == self._transcript:
            return self._unlabelled(held)
        held = "".join([*self._lines, self._begun])
        return "", "" if self._ends_with_empty_action(held) else held

    def _begin(self) -> tuple[str, str]:
        words = self._held.lstrip()
        is_near = len(self._held) - len(words) <= MAX_SPACE_CHARS
        if is_near and any(label.startswith(words[: len(label)]) for label in _LABELS):
            if not words.startswith(_LABELS):
                return "", ""
            if not self._was_told():
                self._reads = self._transcript
                return self._reads()
        self._reads = self._prose
        return self._reads()

    def _transcript(self) -> tuple[str, str]:
        """Hold everything up to the final answer."""
        if answer := _FINAL_ANSWER.search(self._held):
            # The white space that the answer begins with may still be on its way.
            rest = self._held[answer.end() :].lstrip()
            if not rest:
                return "", ""
            thought = "\n".join(text for label, text in _parts(self._held[: answer.start()]) if label == "Thought")
            self._held = rest
            self._reads = self._prose
            return thought, self._reads()[1]
        if len(self._held) > MAX_HELD_CHARS:
            self._reads = self._prose
            return self._reads()
        return "", ""

    def _prose(self) -> tuple[str, str]:
        """Show everything but lines at the end that may turn out to be an empty action."""
        *ends, rest = self._held.split("\n")
        self._held = ""
        return "", "".join([*(self._pass(f"{end}\n") for end in ends), self._pass(rest)])

    def _pass(self, text: str) -> str:
        """Take in text of one line; return what can be shown now."""
        line = self._begun + text
        if not self._line and self._may_be_empty_action(line):
            if line.endswith("\n"):
                self._lines.append(line)
                line = ""
            self._begun = line
            return ""
        shown = "".join([*self._lines, line])
        self._lines.clear()
        self._begun = ""
        self._remember(shown)
        return shown

    def _may_be_empty_action(self, line: str) -> bool:
        """Return whether a line, or the beginning of one, may be of an empty action; that begins at the margin."""
        is_first = not self._lines
        if len(line) > MAX_LINE_CHARS or (is_first and not line[:1].strip()):
            return False
        words = line.strip().lower()
        if not words or _is_empty_action(words):
            return True
        return not line.endswith("\n") and any(one.startswith(words) for one in _EMPTY_LINES)

    def _remember(self, shown: str) -> None:
        *ends, rest = shown.split("\n")
        for end in ends:
            line = _begin_line(self._line + end)
            self._line = ""
            self._is_in_fence ^= line.startswith(("```", "~~~"))
            self._last_line = line if line.strip() else self._last_line
        self._line = _begin_line(self._line + rest)

    def _ends_with_empty_action(self, held: str) -> bool:
        lines = [line.strip().lower() for line in held.splitlines() if line.strip()]
        is_empty_action = bool(lines) and lines[0].startswith("action:") and all(map(_is_empty_action, lines))
        if not is_empty_action or self._is_in_fence or self._was_told():
            return False
        # "Severity: low", "Action: none": a list of fields.
        return not _FIELD.match(self._last_line)

    def _unlabelled(self, held: str) -> tuple[str, str]:
        """Return a transcript without a final answer: what it says, where it is clear that it is one."""
        parts = _parts(held)
        labels = [label for label, _ in parts]
        if labels == ["Observation"] and self._is_result(parts[0][1]):
            return "", parts[0][1]
        actions = [f"{label}:{text}".lower() for label, text in parts if label in ("Action", "Action Input")]
        if "Action" not in labels or not all(map(_is_empty_action, actions)):
            return "", held
        said = [text for label, text in parts if label in ("Thought", "Observation") and text]
        return "", said[-1] if said else held

    def _is_result(self, text: str) -> bool:
        folded = " ".join(text.split())
        return bool(folded) and any(folded in " ".join(one.split()) for one in self._told())

    def _was_told(self) -> bool:
        return any(_TOLD.search(text) for text in self._told())


def _parts(transcript: str) -> list[tuple[str, str]]:
    """Return each label with the text behind it."""
    found = list(_LABEL.finditer(transcript))
    starts = [*(one.start() for one in found), len(transcript)]
    return [(one[1], transcript[one.end() : end].strip()) for one, end in zip(found, starts[1:], strict=True)]


def _is_empty_action(line: str) -> bool:
    label, _, value = line.partition(":")
    value = value.strip().rstrip(".")
    return (label == "action" and value in _NO_ACTION) or (label == "action input" and value in _NO_INPUT)


def _begin_line(line: str) -> str:
    """Return as much of a line as it is judged by, and of blanks before its first word no more than one."""
    return line.lstrip()[:MAX_LINE_CHARS] or line[:1]
