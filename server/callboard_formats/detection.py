"""Detects which syntax a model writes, and whether its prompt opens a thought, from its chat template, prompt or name.

A chat template is a program from an untrusted source. It is searched for text and never run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from callboard_formats.formats import SYNTAXES, syntaxes_of
from callboard_formats.syntax import Tags

MAX_TEMPLATE_CHARS = 2**18
"""The number of characters of a template that are searched: six times the length of the largest known template."""
MAX_VARIABLES = 64

SHARED_WORDS = {
    "hunyuan_3": ("glm", "hunyuan_a13b"),
    "llama4": ("llama3",),
    "phi4_mini": ("granite",),
    "seed_oss": ("qwen3_coder",),
    "step3": ("deepseek",),
}
"""For each family, the other syntaxes whose words its chat template also contains."""

_SET = re.compile(
    r"\{%-?\s{0,9}set\s{1,9}(\w{1,64})\s{0,99}=\s{0,9}(?:'([^'\n]{1,64})'|\"([^\"\n]{1,64})\")\s{0,99}-?%\}"
)
_GENERATION = "add_generation_prompt"
_CONDITION = re.compile(r"\{%-?\s{0,9}(?:if|elif|else)\b|\sif\s")


@dataclass(frozen=True, slots=True)
class FoundFormat:
    """The syntax in which a model writes its calls. `because` names the evidence, for example "its name"."""

    name: str
    because: str
    is_from_template: bool = False


def find_format(
    model: str, template: str = "", other_names: Sequence[str] = (), prompt: str = ""
) -> FoundFormat | None:
    """Return the syntax of a model, from its chat template, or otherwise from its names; None if it is unknown.

    `prompt` is an example that the template produced. It contains complete markers, even if the template joins them
    from pieces. A template is better evidence than a name, but not if it has the words of several syntaxes.
    """
    if (name := _syntax_of_template(f"{prompt}\n{template}")) is not None:
        return FoundFormat(name, "its chat template", is_from_template=True)
    for model_name, because in [(model, "its name"), *((other, f"its other name {other}") for other in other_names)]:
        for syntax in SYNTAXES:
            if _matches(model_name, syntax.models):
                return FoundFormat(syntax.name, because)
    return None


def prompt_opens_thought(syntax: str, template: str, prompt: str = "") -> bool | None:
    """Return whether the prompt of a model of this syntax ends inside a thought; None if that is unknown.

    `prompt` is an example that the template produced. Its end decides. Without an example, the end of the template
    decides, unless it contains a condition.
    """
    tags = [tag for one in SYNTAXES if one.name == syntax for tag in one.reasoning]
    if prompt:
        return prompt.rstrip().endswith(tuple(tag.opener for tag in tags))
    _, found, ending = spell_out(template).rpartition(_GENERATION)
    if not found or _CONDITION.search(ending):
        return None
    opened = max((ending.rfind(tag.opener) for tag in tags), default=-1)
    closed = max((ending.rfind(tag.closer) for tag in tags if tag.closer), default=-1)
    return True if opened > closed else None


def opened_thought_tags(
    model: str, formats: Sequence[str] | None, *, thinking: bool | None, prompt_opens: bool | None = None
) -> tuple[Tags, ...]:
    """Return the tags of the thought that the prompt has opened; () if it has opened no thought.

    `thinking` decides if it is known. Otherwise `prompt_opens` decides, and then the model's name. None means unknown.
    """
    opens = prompt_opens if thinking is None else thinking
    if opens is False:
        return ()
    # A model thinks in its own tags, even if it was asked to write its calls in another syntax.
    syntaxes = [one for one in SYNTAXES if _matches(model, one.prompt_opens)]
    if opens:
        syntaxes += [one for one in SYNTAXES if _matches(model, one.models)]
        syntaxes += syntaxes_of(formats)
    return tuple(dict.fromkeys(tag for one in syntaxes for tag in one.reasoning if tag.marks_a_thought))


def spell_out(template: str) -> str:
    """Return the template with its text variables replaced by their values.

    Some templates join markers from pieces: `<{{ dsml_token }}function_calls>`.
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


def _syntax_of_template(template: str) -> str | None:
    """Return the syntax whose words the template contains; None if it has words of no syntax or of several."""
    spelled = spell_out(template)
    found = {one.name for one in SYNTAXES if any(word in spelled for word in one.template)}
    found -= {other for name in found for other in SHARED_WORDS.get(name, ())}
    return found.pop() if len(found) == 1 else None


def _matches(model: str, patterns: Sequence[str]) -> bool:
    """Return whether one of the patterns matches the model's name. In names, `_` and a blank count as `-`."""
    name = model.lower().replace("_", "-").replace(" ", "-")
    return any(regex.search(pattern, name) for pattern in patterns)
