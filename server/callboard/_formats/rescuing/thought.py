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
        self._within: bool | None = None
        """True inside the reasoning; None while that is open; False once the text has begun."""
        self._strips = False
        """The last thing read was a tag, so white space that follows is dropped."""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that can be shown now."""
        if self._within is None:
            text = self._held + text
            self._held = ""
            words = text.lstrip()
            is_far = len(text) - len(words) > MAX_HELD_SPACE
            if not is_far and len(words) < len(THINK) and THINK.startswith(words.lower()):
                self._held = text
                return "", ""
            self._within = not is_far and words[: len(THINK)].lower() == THINK
            if not self._within:
                return "", text
            text = words[len(THINK) :]
            self._strips = True
        if self._within:
            return self._think(self._held + text)
        return "", self._beside(text)

    def finish(self) -> tuple[str, str]:
        """Return the reasoning and the text that were held back."""
        held = self._held
        self._held = ""
        within = self._within
        self._within = False
        return (held, "") if within else ("", held)

    def _think(self, text: str) -> tuple[str, str]:
        ended = _ENDS_THOUGHT.search(text)
        if ended is None:
            text = self._beside(text)
            start = text.rfind("<", max(0, len(text) - len(_THINK_END) + 1))
            is_tag = start >= 0 and _THINK_END.startswith(text[start:].lower())
            end = _without_space(text, start if is_tag else len(text))
            self._held = text[end:]
            return text[:end], ""
        reasoning = self._beside(text[: ended.start()])
        reasoning = reasoning[: _without_space(reasoning, len(reasoning))]
        self._held = ""
        self._within = False
        self._strips = True
        return reasoning, self._beside(text[ended.end() :])

    def _beside(self, text: str) -> str:
        if self._strips:
            text = text.lstrip()
            self._strips = not text
        return text


def _without_space(text: str, end: int) -> int:
    return max(len(text[:end].rstrip()), end - MAX_HELD_SPACE)
