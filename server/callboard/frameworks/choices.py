"""A question with options, which the user answers in a text field: with the number of an option or with words."""

import re
from collections.abc import Sequence

HINT = "A number, or your own words"

_NUMBER = re.compile(r"[0-9]{1,4}\.?")


def list_options(options: Sequence[tuple[str, str]]) -> str:
    """Return the options, each a label and a description that may be empty, as numbered lines."""
    return "\n".join(
        f"{number}. {label}{f': {description}' if description else ''}"
        for number, (label, description) in enumerate(options, 1)
    )


def find_option(answer: str, labels: Sequence[str]) -> int | None:
    """Return the index of the option that an answer names by its label or its number, None if it names none."""
    words = answer.strip()
    folded = [label.strip().casefold() for label in labels]
    if words in labels:
        return labels.index(words)
    if words.casefold() in folded:
        return folded.index(words.casefold())
    place = int(words.rstrip(".")) if _NUMBER.fullmatch(words) else 0
    return place - 1 if 0 < place <= len(labels) else None
