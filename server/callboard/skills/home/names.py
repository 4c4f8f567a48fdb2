"""Names: from what people say to what they mean, "the lights in the kitchen" to `light.kitchen_ceiling`.

What fits several things is never guessed at, and what nearly fits is never switched.
"""

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher

from callboard.errors import ToolError
from callboard.skills.home.change import Change, list_abilities
from callboard.skills.home.snapshot import Area, Entity, HomeSnapshot

MAX_CANDIDATES = 12
TYPO_RATIO = 0.84
"""Likeness of a word with a typo; `kithcen` and `kitchen` 0.86, `left` and `lift` 0.75."""

TYPO_LETTERS = 4
"""Shorter words are too easily another one."""

NOISE = frozenset({"all", "at", "in", "my", "of", "on", "our", "the"})

KINDS = {"climate": "thermostat", "light": "lamp bulb"}
"""Words by which people call things that Home Assistant calls so. Not blind for cover: that may be a garage door."""


def words(text: str) -> frozenset[str]:
    """Return the words of a name, without case, accents, plural and filling."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(char))
    found = (_make_singular(word) for word in re.findall(r"[^\W_]+", plain))
    return frozenset(found) - NOISE


def kind_words(entity: Entity) -> frozenset[str]:
    """Return the kind of thing that it is, in all words for that."""
    return words(f"{entity.domain} {entity.device_class} {KINDS.get(entity.domain, '')}")


def find_area(home: HomeSnapshot, name: str | None) -> Area | None:
    """Return the area of that name, alias or id, None where none is named.

    Raises `ToolError` where there is none of that name, or more than one.
    """
    if not name:
        return None
    wanted = words(name)
    exact = [area for area in home.areas if name == area.area_id or wanted in map(words, (area.name, *area.aliases))]
    within = [area for area in home.areas if wanted and wanted <= words(" ".join((area.name, *area.aliases)))]
    found = exact or within
    if len(found) == 1:
        return found[0]
    known = ", ".join(area.name for area in found or home.areas) or "none at all"
    raise ToolError(
        f"'{name}' could be several areas: {known}. Say which."
        if found
        else f"There is no area '{name}'. There is: {known}."
    )


def find_entity(
    home: HomeSnapshot, name: str, area: Area | None = None, change: Change | None = None, kind: str | None = None
) -> Entity:
    """Return the entity of that id, name or alias, in `area` and of `kind` where they are given.

    Else it is the only one with all the words.

    What is to be changed is not a sensor, and of things with exactly that name it is the one that
    takes the change; but where a name only nearly fits, nothing is changed. Raises `ToolError`
    where none or several fit, with the names to choose from.
    """
    for entity in home.entities:
        if entity.entity_id == name.strip().casefold():
            return entity
    here = [
        one
        for one in home.entities
        if not (one.minor or one.hidden) and area in (None, one.area) and words(kind or "") <= kind_words(one)
    ]
    wanted = words(name)
    exact = [entity for entity in here if wanted and wanted in map(words, (entity.name, *entity.aliases))]
    if any(wanted in map(words, (place.name, *place.aliases)) for place in home.areas):
        # "Living room" may be the player of that name, or all that is there.
        exact = []
    found = exact or [entity for entity in here if wanted and wanted <= _all_words(entity)]
    if len(found) > 1 and change is not None:
        # "Open the door" must not open the garage because the other doors have only locks.
        found = [entity for entity in found if (change.suits(entity) if exact else list_abilities(entity))] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise ToolError(
            f"'{name}' could be several: {_name_some(found)}. Say which by its id; ask the user if need be."
        )
    near = [entity for entity in here if _is_near(wanted, _all_words(entity))]
    if len(near) == 1 and change is None:
        return near[0]
    place = (f" of the kind {kind}" if kind else "") + (f" in {area.name}" if area else "")
    hint = f"Did you mean {_name_some(near)}?" if near else "Use action query to see what there is."
    raise ToolError(f"There is no '{name}'{place}. {hint}")


def find_all(home: HomeSnapshot, area: Area, kind: str, change: Change) -> list[Entity]:
    """Return everything of `kind` in `area` that takes the change. Raises `ToolError` if there is nothing."""
    found = [
        one
        for one in home.entities
        if one.area == area
        and one.exposed
        and not (one.minor or one.hidden)
        and words(kind) <= kind_words(one)
        and change.suits(one)
    ]
    if not found:
        raise ToolError(f"Nothing of the kind {kind} in {area.name} takes that. Use action query to see what there is.")
    return found


def fits(entity: Entity, name: str) -> bool:
    """Return whether its name, area and kind have all words of `name`; it may also be its id."""
    wanted = words(name)
    return entity.entity_id == name or bool(wanted and wanted <= _all_words(entity))


def _all_words(entity: Entity) -> frozenset[str]:
    place = (entity.area.name, *entity.area.aliases) if entity.area else ()
    return words(" ".join((entity.name, *entity.aliases, *place))) | kind_words(entity)


def _make_singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _is_near(wanted: frozenset[str], there: frozenset[str]) -> bool:
    return bool(wanted) and all(any(_are_alike(word, other) for other in there) for word in wanted)


def _are_alike(word: str, other: str) -> bool:
    if word == other:
        return True
    # Numbers tell things apart: lamp2 is not lamp1.
    if min(len(word), len(other)) < TYPO_LETTERS or word[0] != other[0] or not (word + other).isalpha():
        return False
    return SequenceMatcher(None, word, other).ratio() >= TYPO_RATIO


def _name_some(entities: Sequence[Entity]) -> str:
    shown = [f"{entity} in {entity.area.name}" if entity.area else str(entity) for entity in entities[:MAX_CANDIDATES]]
    more = len(entities) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
