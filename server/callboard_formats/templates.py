"""Chat templates, read for what they tell of a model: the words of its syntax, and whether its prompt opens a thought.

A template is a program that a stranger wrote. It is searched, and never run.
"""

import re
from collections.abc import Sequence

from callboard_formats.syntax import Tags

MAX_TEMPLATE_CHARS = 2**18
"""The most of a template that is read; the largest that are met have a sixth of it."""
MAX_VARIABLES = 64

_SET = re.compile(
    r"\{%-?\s{0,9}set\s{1,9}(\w{1,64})\s{0,99}=\s{0,9}(?:'([^'\n]{1,64})'|\"([^\"\n]{1,64})\")\s{0,99}-?%\}"
)
_GENERATION = "add_generation_prompt"
_CONDITION = re.compile(r"\{%-?\s{0,9}(?:if|elif|else)\b|\sif\s")


def spell_out(template: str) -> str:
    """Return the template with the texts that it has names for in their places.

    A marker may stand there in pieces only: `<{{ dsml_token }}function_calls>`.
    """
    template = template[:MAX_TEMPLATE_CHARS]
    texts = {found[1]: found[2] or found[3] for found in _SET.finditer(template)}
    names = "|".join(list(texts)[:MAX_VARIABLES])
    if not names:
        return template
    used = re.compile(
        rf"\{{\{{-?\s{{0,9}}(?P<printed>{names})\s{{0,9}}-?\}}\}}"
        rf"|[\"']\s{{0,9}}[+~]\s{{0,9}}(?P<joined>{names})\s{{0,9}}[+~]\s{{0,9}}[\"']"
    )
    return used.sub(lambda found: texts[found["printed"] or found["joined"]], template)


def find_opened_thought(template: str, prompt: str, tags: Sequence[Tags]) -> bool | None:
    """Return whether the model's prompt ends within a thought, which one of `tags` opens; None where it cannot be told.

    `prompt` is one that the template made: it shows it. The template alone tells where it has no choice.
    """
    if prompt:
        return prompt.rstrip().endswith(tuple(tag.opener for tag in tags))
    _, says_when, ending = spell_out(template).rpartition(_GENERATION)
    if not says_when or _CONDITION.search(ending):
        return None
    opened = max((ending.rfind(tag.opener) for tag in tags), default=-1)
    closed = max((ending.rfind(tag.closer) for tag in tags if tag.closer), default=-1)
    return True if opened > closed else None
