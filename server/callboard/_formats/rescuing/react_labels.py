"""Removes the labels of ReAct from an answer that as a whole is a ReAct transcript.

A model that calls tools natively may also have been trained on ReAct. It may answer `Final Answer: 42` or only
`Thought: It is 42.`, or end with `Action: None`, with an empty `Observation:`, or with a tag of a call that is not
there. These labels are removed only if the whole answer has that shape. In an explanation, a quotation, code or a list
of fields they are part of the answer, and also if the messages that the model was sent mention them. A `Thought:` in
the middle of an answer is removed if a rescued call follows it.
"""

import re
from collections.abc import Callable, Sequence

MAX_HELD_CHARS = 16_000
MAX_SPACE_CHARS = 80
MAX_TAG_CHARS = 16
"""More characters than the longest match of `_TAG_WORDS`, which may come in pieces."""
MAX_LINE_CHARS = 80
"""The number of characters of a line that are examined. A longer line is not an empty action."""
_LABELS = ("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "**Final Answer:**")
_THOUGHT = _LABELS[0]
_FINAL_ANSWER = re.compile(r"^[ \t]*(?:Final Answer:|\*\*Final Answer:\*\*)[ \t]*\n?", re.MULTILINE)
_LABEL = re.compile(r"^[ \t]*(Thought|Action|Action Input|Observation):[ \t]*", re.MULTILINE)
_NEXT_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*[^\s]")
_NO_ACTION = frozenset({"none", "n/a", "null"})
_NO_INPUT = _NO_ACTION | {"", "{}"}
_LONE_TAGS = ("<tool_call>", "</tool_call>", "<function_call>", "</function_call>", "</function>")
_EMPTY_LINES = (
    *(f"action: {nothing}" for nothing in sorted(_NO_ACTION)),
    *(f"action input: {nothing}" for nothing in sorted(_NO_INPUT)),
    "observation:",
    *_LONE_TAGS,
)
_FIELD = re.compile(r"\s*(?:[-*+>|]|\d+[.)]|[*_]*\w[\w -]{0,40}[*_]*:)")
"""The beginning of a field, or of a line of a list, a quotation or a table."""
_REACT_WORDS = re.compile(r"\bReAct\b|final answer", re.IGNORECASE)
_TAG_WORDS = re.compile(r"(?:tool|function).?call|<function", re.IGNORECASE)


class LabelRemover:
    """Reads the text of one answer. `sent_texts` returns the texts of the messages that the model was sent.

    `feed` and `finish` return reasoning and text.
    """

    def __init__(self, sent_texts: Callable[[], Sequence[str]]) -> None:
        self._sent_texts = sent_texts
        self._held = ""
        self._read_on = self._read_beginning
        self._holds_thoughts = True
        self._holds_lines = True
        self._empty_to = 0
        """The held text up to this index consists of lines without content."""
        # These decide whether the end of the answer is scaffolding: the beginning of the line that is being shown, the
        # beginning of the last complete line that is not blank, the last characters, and whether a fence is open.
        self._line = ""
        self._last_line = ""
        self._last_char = ""
        self._last_chars = ""
        self._is_in_fence = False
        self._has_tags = False
        """The text that was shown speaks of calls, or contains a tag of one."""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that can be shown now."""
        self._held += text
        return self._read_on()

    def finish(self, *, is_rescued: bool = False) -> tuple[str, str]:
        """Return the held text without labels. `is_rescued` says that a rescued call follows it."""
        if is_rescued and self._held.lstrip().startswith(_THOUGHT):
            return _thoughts_before_call(self._take(len(self._held)))
        if self._read_on != self._read_prose:
            held = self._take(len(self._held))
            return "", _LABEL.sub("", held) if [label for label, _ in _parts(held)] == ["Thought"] else held
        self._holds_thoughts = False
        _, shown = self._read_prose()
        end = self._take(len(self._held))
        if self._is_scaffolding(end):
            return "", shown
        # More text may follow, behind a native call.
        for line in end.splitlines(keepends=True):
            self._remember(line)
        return "", shown + end

    def _take(self, end: int) -> str:
        self._empty_to = max(0, self._empty_to - end)
        taken = self._held[:end]
        self._held = self._held[end:]
        return taken

    def _read_beginning(self) -> tuple[str, str]:
        words = self._held.lstrip()
        is_near = len(self._held) - len(words) <= MAX_SPACE_CHARS
        if is_near and any(label.startswith(words[: len(label)]) for label in _LABELS):
            if not words.startswith(_LABELS):
                return "", ""
            if not self._is_mentioned(_REACT_WORDS):
                self._read_on = self._read_transcript
                return self._read_on()
        self._read_on = self._read_prose
        return self._read_on()

    def _read_transcript(self) -> tuple[str, str]:
        """Hold all text up to the final answer."""
        if answer := _FINAL_ANSWER.search(self._held):
            # More white space at the beginning of the answer may follow.
            rest = self._held[answer.end() :].lstrip()
            if not rest:
                return "", ""
            thought = "\n".join(text for label, text in _parts(self._held[: answer.start()]) if label == "Thought")
            self._held = rest
            self._read_on = self._read_prose
            return thought, self._read_on()[1]
        if len(self._held) > MAX_HELD_CHARS:
            self._read_on = self._read_prose
            self._holds_thoughts = False
            return self._read_on()
        return "", ""

    def _read_prose(self) -> tuple[str, str]:
        """Return all text except lines at its end that may be labels: a thought, or empty actions."""
        at = 0
        while at < len(self._held):
            if not self._line and not self._is_in_fence and self._may_be_scaffolding(at):
                break
            line_end = self._held.find("\n", at) + 1 or len(self._held)
            self._remember(self._held[at:line_end])
            at = line_end
        return "", self._take(at)

    def _may_be_scaffolding(self, at: int) -> bool:
        """Return whether the held text from the line at `at` on may be scaffolding, or the beginning of it."""
        held = self._held
        if len(held) - at > MAX_HELD_CHARS:
            # Hold no more lines: each further line would be examined together with all of these.
            self._empty_to = 0
            self._holds_lines = False
        if not self._holds_lines or not held[at : at + 1].strip():
            return False
        begin = held[at : at + len(_THOUGHT)]
        if self._holds_thoughts and _THOUGHT.startswith(begin):
            is_whole = begin == _THOUGHT
            return not is_whole or not (_NEXT_PARAGRAPH.search(held, at) or self._is_mentioned(_REACT_WORDS))
        *lines, rest = held[max(at, self._empty_to) :].split("\n")
        if not all(_is_empty_line(line) for line in lines):
            return False
        self._empty_to = len(held) - len(rest)
        words = rest.strip().lower()
        return len(rest) <= MAX_LINE_CHARS and (
            _is_empty_line(rest) or any(one.startswith(words) for one in _EMPTY_LINES)
        )

    def _remember(self, shown: str) -> None:
        """Update the state that decides about the end of the answer. `shown` is one line or a part of it."""
        line = _begin_line(self._line + shown.removesuffix("\n"))
        self._last_char = shown.rstrip()[-1:] or self._last_char
        self._has_tags = self._has_tags or _TAG_WORDS.search(self._last_chars + shown) is not None
        self._last_chars = (self._last_chars + shown)[-MAX_TAG_CHARS:]
        if not shown.endswith("\n"):
            self._line = line
            return
        self._line = ""
        self._is_in_fence ^= line.startswith(("```", "~~~"))
        self._last_line = line if line.strip() else self._last_line

    def _is_scaffolding(self, end: str) -> bool:
        """Return whether the last lines of the answer are empty actions, a label without a result, or lone tags."""
        lines = [line.strip().lower() for line in end.splitlines() if line.strip()]
        if not lines or lines[0].startswith("action input") or not all(map(_is_empty_line, lines)):
            return False
        if self._is_in_fence or self._last_char in (":", "：") or self._is_mentioned(_REACT_WORDS):
            return False
        if not _is_empty_action(lines[0]):
            return not (self._has_tags or self._is_mentioned(_TAG_WORDS))
        # "Severity: low", "Action: none" is a list of fields.
        return not _FIELD.match(self._last_line)

    def _is_mentioned(self, words: "re.Pattern[str]") -> bool:
        return any(words.search(text) for text in self._sent_texts())


def _parts(transcript: str) -> list[tuple[str, str]]:
    """Return each label with the text that follows it."""
    found = list(_LABEL.finditer(transcript))
    starts = [*(one.start() for one in found), len(transcript)]
    return [(one[1], transcript[one.end() : end].strip()) for one, end in zip(found, starts[1:], strict=True)]


def _thoughts_before_call(held: str) -> tuple[str, str]:
    """Return the thoughts as reasoning; with any other label, return everything as text."""
    parts = _parts(held)
    if any(label != "Thought" for label, _ in parts):
        return "", held
    return "\n".join(text for _, text in parts), ""


def _is_empty_line(line: str) -> bool:
    """Return whether a line is blank, an action without a tool, an observation without a result, or a lone tag."""
    words = line.strip().lower()
    return not words or words in ("observation:", *_LONE_TAGS) or _is_empty_action(words)


def _is_empty_action(line: str) -> bool:
    label, _, value = line.partition(":")
    value = value.strip().rstrip(".")
    return (label == "action" and value in _NO_ACTION) or (label == "action input" and value in _NO_INPUT)


def _begin_line(line: str) -> str:
    """Return the examined beginning of a line; of a blank line only its first character."""
    return line.lstrip()[:MAX_LINE_CHARS] or line[:1]
