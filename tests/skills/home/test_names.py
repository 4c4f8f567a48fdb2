"""The entities that are meant by users' names for them."""

import pytest

from callboard.errors import ToolError
from tests.fakes.home_assistant import HomeAssistantServer
from tests.skills.home.conftest import Room


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("light.bed_light", "light.bed_light"),
        ("reading lamp", "light.bed_light"),
        ("light in the kitchen", "light.kitchen_lights"),
        ("Thermostat", "climate.hvac"),
        ("AC", "switch.ac"),
    ],
)
async def test_a_thing_is_found_by_name_alias_area_and_kind(room: Room, said: str, meant: str) -> None:
    assert f"({meant})" in (await room.home("get", said)).splitlines()[0]


async def test_an_exact_name_wins_over_longer_ones(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.add("light.bed_light_2", "Bed light of the guest")
    assert (await room.home("get", "bed light")).startswith("Bed Light (light.bed_light):")


async def test_ambiguous_name_is_refused(room: Room, assistant: HomeAssistantServer) -> None:
    with pytest.raises(ToolError) as raised:
        await room.home("set", "living room light", command="off")
    assert str(raised.value) == (
        "'living room light' could be several: Ceiling Lights (light.ceiling_lights) in Living Room, "
        "Living Room RGBWW Lights (light.living_room_rgbww_lights) in Living Room. "
        "Choose one by its id; ask the user if needed."
    )
    assert assistant.called == []


async def test_area_distinguishes_entities_of_same_name(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.add("switch.fridge", "Fridge", area_id="kitchen")
    assistant.add("switch.fridge_2", "Fridge", area_id="garage")
    with pytest.raises(ToolError, match="could be several"):
        await room.home("set", "fridge", command="on")
    await room.home("set", "fridge", area="garage", command="on")
    await room.home("set", "kitchen fridge", command="on")
    assert [entity_id for _, entity_id, _ in assistant.called] == ["switch.fridge_2", "switch.fridge"]


async def test_change_means_the_entity_that_supports_its_command(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.add("switch.window", "Kitchen Window", area_id="kitchen")
    assistant.add("sensor.bed_light_power", "Bedroom power", area_id="bedroom")
    await room.home("set", "kitchen window", command="open")
    await room.home("set", "kitchen window", command="on")
    await room.home("set", "bedroom", command="on")
    changed = [entity_id for _, entity_id, _ in assistant.called]
    assert changed == ["cover.kitchen_window", "switch.window", "light.bed_light"]


@pytest.mark.parametrize(("said", "command"), [("the door", "open"), ("cover", "open"), ("living room", "off")])
async def test_vague_name_or_name_of_a_room_changes_nothing(
    room: Room, assistant: HomeAssistantServer, said: str, command: str
) -> None:
    # Only the garage door can be opened, but that does not make it the one that is meant.
    with pytest.raises(ToolError, match=r"could be several|There is no"):
        await room.home("set", said, command=command)
    assert assistant.called == []


async def test_misspelt_name_is_answered_with_similar_ones(room: Room, assistant: HomeAssistantServer) -> None:
    with pytest.raises(ToolError) as raised:
        await room.home("set", "kithcen lights", command="off")
    assert str(raised.value) == (
        "There is no 'kithcen lights'. Did you mean Kitchen Lights (light.kitchen_lights) in Kitchen?"
    )
    assert assistant.called == []


@pytest.mark.parametrize("said", ["spot 2", "", "the", "spotlight2", "light.spot_9"])
async def test_unknown_name_is_not_matched_by_similarity(room: Room, assistant: HomeAssistantServer, said: str) -> None:
    assistant.add("light.spot_1", "Left spot 1")
    assistant.add("light.spotlight", "Spotlight1")
    with pytest.raises(ToolError, match=r"There is no|needs the argument"):
        await room.home("get", said)


async def test_names_of_other_alphabets_and_accents_are_found(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.add("light.salon", "Lumière du salon")
    assistant.add("light.kukhnya", "Свет на кухне")
    assert "(light.salon)" in await room.home("get", "LUMIERE DU SALON")
    assert "(light.kukhnya)" in await room.home("get", "свет на кухне")
