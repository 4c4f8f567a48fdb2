"""Finds the entities that a user names, for example "the lights in the kitchen".

An ambiguous or misspelt name is never guessed: the error lists the entities that may be meant.
"""

import re
import unicodedata
from collections.abc import Sequence
from difflib import get_close_matches

from callboard.errors import ToolError
from callboard.skills.home.change import Change, list_abilities
from callboard.skills.home.snapshot import Area, Entity, HomeSnapshot

MAX_CANDIDATES = 12
SIMILAR = 0.8
"""The similarity of names that may be misspelt: `kithcen lights` and `kitchen lights` have 0.93."""

STOP_WORDS = frozenset({"all", "at", "in", "my", "of", "on", "our", "the"})

KINDS = {"climate": "thermostat", "light": "lamp bulb"}
"""Other words for the kinds of Home Assistant. `blind` is missing for `cover`, which may be a garage door."""


def normalize_words(text: str) -> frozenset[str]:
    """Return the words of a name, without case, accents, plural endings and stop words."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(char))
    found = (_make_singular(word) for word in re.findall(r"[^\W_]+", plain))
    return frozenset(found) - STOP_WORDS


def is_of_kind(entity: Entity, kind: str | None) -> bool:
    """Return whether the entity is of this kind, in any word for it; every entity is, if no kind is given."""
    return normalize_words(kind or "") <= _kind_words(entity)


def find_area(home: HomeSnapshot, name: str | None) -> Area | None:
    """Return the area with that name, alias or id; None if no name is given.

    Raises `ToolError` if no area or several areas match.
    """
    if not name:
        return None
    wanted = normalize_words(name)
    exact = [area for area in home.areas if name == area.area_id or wanted in map(normalize_words, area.names)]
    within = [area for area in home.areas if wanted and wanted <= normalize_words(" ".join(area.names))]
    found = exact or within
    if len(found) == 1:
        return found[0]
    known = ", ".join(area.name for area in found or home.areas) or "none at all"
    raise ToolError(
        f"'{name}' could be several areas: {known}. Choose one."
        if found
        else f"There is no area '{name}'. The areas are: {known}."
    )


def find_entity(
    home: HomeSnapshot, name: str, area: Area | None = None, change: Change | None = None, kind: str | None = None
) -> Entity:
    """Return the entity with that id, name or alias, otherwise the only one that matches all the words.

    The search is limited to `area` and `kind` if they are given. With `change`, entities that cannot be changed are
    left out, and of several entities with exactly that name the one that supports the change is returned. Raises
    `ToolError`, with candidates, if none or several match.
    """
    for entity in home.entities:
        if entity.entity_id == name.strip().casefold():
            return entity
    candidates = [
        entity
        for entity in home.entities
        if entity.is_named and area in (None, entity.area) and is_of_kind(entity, kind)
    ]
    wanted = normalize_words(name)
    exact = [entity for entity in candidates if wanted and wanted in map(normalize_words, entity.names)]
    if any(wanted in map(normalize_words, place.names) for place in home.areas):
        # "Living room" may mean a media player of that name, or everything in the room.
        exact = []
    found = exact or [entity for entity in candidates if wanted and wanted <= _all_words(entity)]
    if len(found) > 1 and change is not None:
        # "Open the door" must not open the garage door just because the other doors have only locks.
        found = [
            entity for entity in found if (change.is_supported_by(entity) if exact else list_abilities(entity))
        ] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise ToolError(
            f"'{name}' could be several: {_list_candidates(found)}. Choose one by its id; ask the user if needed."
        )
    by_name = {known.casefold(): entity for entity in candidates for known in entity.names}
    close = get_close_matches(name.casefold(), by_name, MAX_CANDIDATES, SIMILAR)
    near = list({by_name[known].entity_id: by_name[known] for known in close}.values())
    place = (f" of the kind {kind}" if kind else "") + (f" in {area.name}" if area else "")
    hint = f"Did you mean {_list_candidates(near)}?" if near else "Use action query to list the entities."
    raise ToolError(f"There is no '{name}'{place}. {hint}")


def find_all(home: HomeSnapshot, area: Area, kind: str | None, change: Change) -> list[Entity]:
    """Return all entities in `area` that support the change, of `kind` if it is given.

    Raises `ToolError` if there are none, and without `kind` if several kinds support the change.
    """
    found = [
        entity
        for entity in home.entities
        if entity.area == area
        and entity.is_exposed
        and entity.is_named
        and is_of_kind(entity, kind)
        and (change.is_supported_by(entity) if kind else not (entity.is_secondary or change.find_unsupported(entity)))
    ]
    if not found:
        what = f"of the kind {kind} in {area.name}" if kind else f"in {area.name}"
        raise ToolError(f"Nothing {what} takes that. Use action query to list the entities.")
    domains = sorted({entity.domain for entity in found})
    if not kind and len(domains) > 1:
        raise ToolError(f"Several kinds of things in {area.name} take that: {', '.join(domains)}. Give the kind.")
    return found


def matches(entity: Entity, name: str) -> bool:
    """Return whether `name` is the entity's id, or all its words are in the entity's name, area and kind."""
    wanted = normalize_words(name)
    return entity.entity_id == name or bool(wanted and wanted <= _all_words(entity))


def _all_words(entity: Entity) -> frozenset[str]:
    place = entity.area.names if entity.area else ()
    return normalize_words(" ".join((*entity.names, *place))) | _kind_words(entity)


def _kind_words(entity: Entity) -> frozenset[str]:
    return normalize_words(f"{entity.domain} {entity.device_class} {KINDS.get(entity.domain, '')}")


def _make_singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _list_candidates(entities: Sequence[Entity]) -> str:
    shown = [f"{entity} in {entity.area.name}" if entity.area else str(entity) for entity in entities[:MAX_CANDIDATES]]
    more = len(entities) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
