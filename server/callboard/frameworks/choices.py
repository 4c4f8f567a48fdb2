"""Questions with options that the user answers in a text field, by number or in words."""

import re
from collections.abc import Sequence

CHOICE_HINT = "A number, or your own words"

_NUMBER = re.compile(r"[0-9]{1,4}\.?")


def list_options(options: Sequence[tuple[str, str]]) -> str:
    """Return the options as numbered lines; each option is a label and a description, which may be empty."""
    return "\n".join(
        f"{number}. {label}{f': {description}' if description else ''}"
        for number, (label, description) in enumerate(options, 1)
    )


def find_option(answer: str, labels: Sequence[str]) -> int | None:
    """Return the index of the option whose label or number the answer is, or None."""
    words = answer.strip()
    folded = [label.strip().casefold() for label in labels]
    if words in labels:
        return labels.index(words)
    if words.casefold() in folded:
        return folded.index(words.casefold())
    place = int(words.rstrip(".")) if _NUMBER.fullmatch(words) else 0
    return place - 1 if 0 < place <= len(labels) else None
