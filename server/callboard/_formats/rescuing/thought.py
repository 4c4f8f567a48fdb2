"""Separates reasoning in `<think>` tags at the beginning of an answer from its text."""

import re

MAX_HELD_SPACE = 80
THINK = "<think>"
_THINK_END = "</think>"
_ENDS_THOUGHT = re.compile(_THINK_END, re.IGNORECASE | re.ASCII)


class LeadingThought:
    """Reads one answer. White space beside the tags is dropped. `feed` and `finish` return reasoning and text."""

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking: bool | None = None
        """True inside the reasoning; None while that is open; False once the text has begun."""
        self._drops_space = False
        """The last thing read was a tag, so white space that follows is dropped."""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that can be shown now."""
        if self._is_thinking is None:
            text = self._held + text
            self._held = ""
            words = text.lstrip()
            is_far = len(text) - len(words) > MAX_HELD_SPACE
            if not is_far and len(words) < len(THINK) and THINK.startswith(words.lower()):
                self._held = text
                return "", ""
            self._is_thinking = not is_far and words[: len(THINK)].lower() == THINK
            if not self._is_thinking:
                return "", text
            text = words[len(THINK) :]
            self._drops_space = True
        if self._is_thinking:
            return self._read_thought(self._held + text)
        return "", self._drop_space(text)

    def finish(self) -> tuple[str, str]:
        """Return the reasoning and the text that were held back."""
        held = self._held
        self._held = ""
        was_thinking = self._is_thinking
        self._is_thinking = False
        return (held, "") if was_thinking else ("", held)

    def _read_thought(self, text: str) -> tuple[str, str]:
        ended = _ENDS_THOUGHT.search(text)
        if ended is None:
            text = self._drop_space(text)
            start = text.rfind("<", max(0, len(text) - len(_THINK_END) + 1))
            is_tag = start >= 0 and _THINK_END.startswith(text[start:].lower())
            end = _without_space(text, start if is_tag else len(text))
            self._held = text[end:]
            return text[:end], ""
        reasoning = self._drop_space(text[: ended.start()])
        reasoning = reasoning[: _without_space(reasoning, len(reasoning))]
        self._held = ""
        self._is_thinking = False
        self._drops_space = True
        return reasoning, self._drop_space(text[ended.end() :])

    def _drop_space(self, text: str) -> str:
        if self._drops_space:
            text = text.lstrip()
            self._drops_space = not text
        return text


def _without_space(text: str, end: int) -> int:
    return max(len(text[:end].rstrip()), end - MAX_HELD_SPACE)
