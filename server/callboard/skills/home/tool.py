"""The tool `home`: what is there, how it is, and changing it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field

from callboard.errors import ToolError
from callboard.skills.actions import missing
from callboard.skills.home.change import Change
from callboard.skills.home.connection import HomeAssistant, connect
from callboard.skills.home.house import Area, Entity, House
from callboard.skills.home.limit import MAX_CHANGES_PER_TURN, take_changes
from callboard.skills.home.names import find_area, find_entity, fits, kind_words, words
from callboard.skills.home.vocabulary import Command
from callboard.skills.home.wording import MAX_LISTED, condition, details, listing, overview
from callboard.tools import ToolContext, tool

MAX_TARGETS_READ = 10

QUIET = frozenset({"conversation", "event", "image", "notify", "stt", "tts", "update", "wake_word", "zone"})
"""Domains that are listed only where they are asked for."""

Action = Literal["query", "get", "set"]
Number = Annotated[float, Field(allow_inf_nan=False)]
Percent = Annotated[int, Field(ge=0, le=100)]


def changes_something(arguments: Mapping[str, Any]) -> bool:
    """Whether a call of `home` with these arguments does more than read."""
    return bool(arguments["action"] == "set")


@tool(changes=changes_something)
async def home(
    context: ToolContext,
    action: Action,
    targets: list[str] | None = None,
    area: str | None = None,
    kind: str | None = None,
    command: Command | None = None,
    level_percent: Percent | None = None,
    color: str | None = None,
    color_temperature_kelvin: Annotated[int, Field(ge=1000, le=20000)] | None = None,
    temperature: Number | None = None,
    option: str | None = None,
    value: Number | None = None,
) -> str:
    """Reads and controls the user's home: lights, covers, locks, heating, media players, sensors, scenes.

    `query` lists what there is, with its state: all of it, or what is in `area`, of a `kind`, or fits the words
    in `targets`. `get` tells all about `targets`, also which commands, settings and options each takes. `set`
    changes `targets`, by a `command`, by settings (level_percent, color, …), or both; a turn may make 3 changes, and
    the same device set twice is two.
    What fits several things is not guessed: the answer lists them. Covers, blinds, garage doors and valves are
    opened and closed, never switched on and off; locks are locked and unlocked.

    Args:
        action: `query` to find and list, `get` for details, `set` to change something.
        targets: Names as the user says them ("kitchen ceiling light") or entity ids; `get` and `set` need them.
        area: A room or other area, to look only there.
        kind: Only this kind of thing: light, cover, lock, climate, media_player, sensor, temperature, door …
        command: For `set`. `activate` is for scenes, scripts and buttons, `start` and `dock` for vacuums.
        level_percent: Brightness of a light, volume of a player, speed of a fan, openness of a cover (100 is open).
        color: Of a light: a name such as red, or #rrggbb.
        color_temperature_kelvin: Of a light: 2700 is warm, 6500 cold.
        temperature: What a thermostat is set to, in the unit of the house.
        option: A thermostat's mode (heat, cool, off), a player's source, a select's option, as `get` lists them.
        value: Of a number.
    """
    match action:
        case "query":
            async with connect(context.services.settings) as assistant:
                return _found(await assistant.house(), targets or [], area, kind)
        case "get":
            async with connect(context.services.settings) as assistant:
                house = await assistant.house()
            names = _named(action, targets, MAX_TARGETS_READ)
            return "\n".join(details(one) for one in _resolved(house, names, _place(house, area), kind))
        case "set":
            change = Change(command, level_percent, color, color_temperature_kelvin, temperature, option, value)
            names = _named(action, targets, MAX_CHANGES_PER_TURN)
            async with connect(context.services.settings) as assistant:
                house = await assistant.house()
                entities = _resolved(house, names, _place(house, area), kind, change)
                return await _changed(assistant, entities, change, context)
        case _:
            assert_never(action)


def _found(house: House, names: Sequence[str], area: str | None, kind: str | None) -> str:
    place = _place(house, area)
    seen = [entity for entity in house.entities if not entity.hidden and place in (None, entity.area)]
    if kind:
        seen = [entity for entity in seen if words(kind) <= kind_words(entity)]
    if names:
        seen = [entity for entity in seen if any(fits(entity, name) for name in names)]
    if not (kind or names):
        seen = [entity for entity in seen if not entity.minor and entity.domain not in QUIET]
    if not seen:
        kinds = ", ".join(sorted({entity.domain for entity in house.entities}))
        areas = ", ".join(sorted(one.name for one in house.areas)) or "none"
        return f"Nothing fits. The areas are: {areas}. The kinds are: {kinds}."
    return overview(seen) if len(seen) > MAX_LISTED and not (kind or names or place) else listing(seen)


async def _changed(assistant: HomeAssistant, entities: Sequence[Entity], change: Change, context: ToolContext) -> str:
    # All is planned before any is done: what is wrong with the last leaves the first as it was.
    plans = [(entity, change.calls(entity)) for entity in entities]
    take_changes(context, len(plans))
    done: list[str] = []
    failed: list[str] = []
    for entity, calls in plans:
        await context.status("processing", entity.name)
        try:
            for call in calls:
                await assistant.call(call.service, entity.entity_id, call.data)
        except ToolError as error:
            failed.append(f"- {entity}: {error}")
        else:
            done.append(await outcome(assistant, entity))
    if failed:
        raise ToolError("\n".join(["This failed:", *failed, *(["This was done:", *done] if done else [])]))
    return "\n".join(done)


async def outcome(assistant: HomeAssistant, before: Entity) -> str:
    """How a thing is that has just been changed, beside how it was."""
    try:
        state = await assistant.state(before.entity_id)
    except ToolError as error:
        return f"- {before}: done, but how it is now cannot be seen. {error}"
    after = Entity(state, before.name, before.area)
    if state == before.state:
        return f"- {before}: told, and its state is as it was: {condition(after)}"
    return f"- {before}: {condition(after)} (was {condition(before)})"


def _resolved(
    house: House, names: Sequence[str], place: Area | None, kind: str | None, change: Change | None = None
) -> list[Entity]:
    found = [find_entity(house, name, place, change, kind) for name in names]
    return list({entity.entity_id: entity for entity in found}.values())


def _place(house: House, area: str | None) -> Area | None:
    return find_area(house, area) if area else None


def _named(action: Action, targets: Sequence[str] | None, most: int) -> list[str]:
    names = [name for name in targets or () if name.strip()]
    if not names:
        raise missing("targets", action)
    if len(names) > most:
        raise ToolError(f"{action} takes {most} targets at most, not {len(names)}. Nothing was done.")
    return names
