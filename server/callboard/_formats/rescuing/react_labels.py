"""The labels of ReAct, taken off an answer that is a ReAct transcript as a whole. Pure.

A model that calls tools natively may have learnt ReAct too and answer `Final Answer: 42`, repeat a tool's result as
`Observation: …`, or end with `Action: None`, with an `Observation:` that it waits for, or with the opening tag of a
call that does not come. Such words are scaffolding only where all of the answer has that shape: in an explanation, a
quotation, code or a list of fields they are what the model says, and so they are where the model was told of them. A
`Thought:` in the middle of an answer is scaffolding if a call follows it that was taken out of the text.
"""

import re
from collections.abc import Callable, Sequence

MAX_HELD_CHARS = 16_000
MAX_SPACE_CHARS = 80
MAX_LINE_CHARS = 80
"""The characters of a line by which it is judged; a longer one is no empty action."""
_LABELS = ("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "**Final Answer:**")
_THOUGHT = _LABELS[0]
_FINAL_ANSWER = re.compile(r"^[ \t]*(?:Final Answer:|\*\*Final Answer:\*\*)[ \t]*\n?", re.MULTILINE)
_LABEL = re.compile(r"^[ \t]*(Thought|Action|Action Input|Observation):[ \t]*", re.MULTILINE)
_NEXT_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*[^\s]")
_NO_ACTION = frozenset({"none", "n/a", "null"})
_NO_INPUT = _NO_ACTION | {"", "{}"}
_LONE_TAGS = ("<tool_call>", "<function_call>")
_EMPTY_LINES = (
    *(f"action: {nothing}" for nothing in sorted(_NO_ACTION)),
    *(f"action input: {nothing}" for nothing in sorted(_NO_INPUT)),
    "observation:",
    *_LONE_TAGS,
)
_FIELD = re.compile(r"\s*(?:[-*+>|]|\d+[.)]|[*_]*\w[\w -]{0,40}[*_]*:)")
"""The beginning of a field, or of a line of a list, a quotation or a table."""
_TOLD = re.compile(r"\bReAct\b|final answer", re.IGNORECASE)
_TOLD_OF_TAGS = re.compile(r"(?:tool|function).?call", re.IGNORECASE)


class LabelRemover:
    """A reader of the text of one answer; `told` gives the texts that the model was sent, its own answers left out."""

    def __init__(self, told: Callable[[], Sequence[str]]) -> None:
        self._told = told
        self._held = ""
        self._reads = self._begin
        self._holds_thoughts = True
        self._holds_lines = True
        self._empty_to = 0
        """Up to here what is held is known to be empty lines."""
        # What the answer's end is judged by: the beginnings of the line that is being shown and of the last whole one
        # that is not blank, the last character, and whether a fence is open.
        self._line = ""
        self._last_line = ""
        self._last_char = ""
        self._is_in_fence = False

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that can be shown now."""
        self._held += text
        return self._reads()

    def finish(self, *, is_rescued: bool = False) -> tuple[str, str]:
        """Return what was held back, without the labels; `is_rescued`: a call was taken out of the text behind it."""
        if self._reads == self._begin:
            return "", self._take(len(self._held))
        if is_rescued and self._held.lstrip().startswith(_THOUGHT):
            return _thoughts_before_call(self._take(len(self._held)))
        if self._reads == self._transcript:
            return self._unlabelled(self._take(len(self._held)))
        self._holds_thoughts = False
        _, shown = self._prose()
        end = self._take(len(self._held))
        return "", shown if self._is_scaffolding(end) else shown + end

    def _take(self, end: int) -> str:
        self._empty_to = max(0, self._empty_to - end)
        taken = self._held[:end]
        self._held = self._held[end:]
        return taken

    def _begin(self) -> tuple[str, str]:
        words = self._held.lstrip()
        is_near = len(self._held) - len(words) <= MAX_SPACE_CHARS
        if is_near and any(label.startswith(words[: len(label)]) for label in _LABELS):
            if not words.startswith(_LABELS):
                return "", ""
            if not self._was_told(_TOLD):
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
            self._holds_thoughts = False
            return self._reads()
        return "", ""

    def _prose(self) -> tuple[str, str]:
        """Show everything but an end that may turn out to be scaffolding: a thought, or empty actions."""
        at = 0
        while at < len(self._held):
            if not self._line and not self._is_in_fence and self._may_be_scaffolding(at):
                break
            line_end = self._held.find("\n", at) + 1 or len(self._held)
            self._remember(self._held[at:line_end])
            at = line_end
        return "", self._take(at)

    def _may_be_scaffolding(self, at: int) -> bool:
        """Return whether what is held from the line at `at` on may be scaffolding, or the beginning of it."""
        held = self._held
        if len(held) - at > MAX_HELD_CHARS:
            # More of it is no scaffolding either: otherwise each further line would be judged with all of these.
            self._empty_to = 0
            self._holds_lines = False
        if not self._holds_lines or not held[at : at + 1].strip():
            return False
        begin = held[at : at + len(_THOUGHT)]
        if self._holds_thoughts and _THOUGHT.startswith(begin):
            is_whole = begin == _THOUGHT
            return not is_whole or not (_NEXT_PARAGRAPH.search(held, at) or self._was_told(_TOLD))
        *lines, rest = held[max(at, self._empty_to) :].split("\n")
        if not all(_is_empty_line(line) for line in lines):
            return False
        self._empty_to = len(held) - len(rest)
        words = rest.strip().lower()
        return len(rest) <= MAX_LINE_CHARS and (
            _is_empty_line(rest) or any(one.startswith(words) for one in _EMPTY_LINES)
        )

    def _remember(self, shown: str) -> None:
        """Keep what the answer's end is judged by, of text that ends in its line or with it."""
        line = _begin_line(self._line + shown.removesuffix("\n"))
        self._last_char = shown.rstrip()[-1:] or self._last_char
        if not shown.endswith("\n"):
            self._line = line
            return
        self._line = ""
        self._is_in_fence ^= line.startswith(("```", "~~~"))
        self._last_line = line if line.strip() else self._last_line

    def _is_scaffolding(self, end: str) -> bool:
        """Return whether these last lines of the answer are empty actions, a label without a result, or lone tags."""
        lines = [line.strip().lower() for line in end.splitlines() if line.strip()]
        if not lines or lines[0].startswith("action input") or not all(map(_is_empty_line, lines)):
            return False
        if self._is_in_fence or self._last_char in (":", "：") or self._was_told(_TOLD):
            return False
        if not _is_empty_action(lines[0]):
            return not self._was_told(_TOLD_OF_TAGS)
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

    def _was_told(self, words: "re.Pattern[str]") -> bool:
        return any(words.search(text) for text in self._told())


def _parts(transcript: str) -> list[tuple[str, str]]:
    """Return each label with the text behind it."""
    found = list(_LABEL.finditer(transcript))
    starts = [*(one.start() for one in found), len(transcript)]
    return [(one[1], transcript[one.end() : end].strip()) for one, end in zip(found, starts[1:], strict=True)]


def _thoughts_before_call(held: str) -> tuple[str, str]:
    """Return the reasoning and the text of thoughts, which a call follows; with other labels all of it is text."""
    parts = _parts(held)
    if any(label != "Thought" for label, _ in parts):
        return "", held
    return "\n".join(text for _, text in parts), ""


def _is_empty_line(line: str) -> bool:
    """Return whether a line is blank, an action without a tool, a result's label without one, or a lone tag."""
    words = line.strip().lower()
    return not words or words in ("observation:", *_LONE_TAGS) or _is_empty_action(words)


def _is_empty_action(line: str) -> bool:
    label, _, value = line.partition(":")
    value = value.strip().rstrip(".")
    return (label == "action" and value in _NO_ACTION) or (label == "action input" and value in _NO_INPUT)


def _begin_line(line: str) -> str:
    """Return as much of a line as it is judged by, and of blanks before its first word no more than one."""
    return line.lstrip()[:MAX_LINE_CHARS] or line[:1]
