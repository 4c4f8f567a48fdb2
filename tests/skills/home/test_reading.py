"""What the model reads of a house."""

import re

import pytest

from callboard.errors import ToolError
from tests.fakes.home_assistant import HomeAssistantServer
from tests.skills.home.conftest import Room


async def test_a_query_lists_everything_by_area_with_its_state(room: Room) -> None:
    found = await room.home("query")
    kitchen, _, rest = found.partition("Living Room:\n")
    assert kitchen.endswith(
        "Kitchen:\n- Kitchen Window (cover.kitchen_window): closed\n- Kitchen Lights (light.kitchen_lights): on, 71 %\n"
    )
    living_room, _, elsewhere = rest.partition("No area:\n")
    assert "- Hvac (climate.hvac): cool, set to 21, measured 22\n" in living_room
    assert "- Living Room Window (cover.living_room_window): open, position 70 %\n" in living_room
    # Entities without a registry entry or an area, and the words for on and off.
    assert "- Front Door (lock.front_door): locked\n" in elsewhere
    assert "- Outside Temperature (sensor.outside_temperature): 15.6 °C\n" in elsewhere
    assert "- Basement Floor Wet (binary_sensor.basement_floor_wet): off (dry)\n" in elsewhere


async def test_entity_has_area_of_device_unless_it_has_its_own(room: Room, assistant: HomeAssistantServer) -> None:
    entry = assistant.entries["light.bed_light"]
    assert entry is not None
    assert entry["area_id"] is None
    assert (await room.home("query", area="bedroom")).startswith("Bedroom:\n- Bed Light (light.bed_light)")
    entry["area_id"] = "kitchen"
    assert "light.bed_light" in await room.home("query", area="kitchen")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"kind": "thermostat"}, {"climate.hvac"}),
        ({"kind": "garage"}, {"cover.garage_door"}),
        ({"kind": "temperature"}, {"sensor.outside_temperature"}),
        ({"area": "the lounge", "kind": "fan"}, {"fan.living_room_fan"}),
        ({"targets": ["window in the living room", "front door"]}, {"cover.living_room_window", "lock.front_door"}),
    ],
)
async def test_a_query_is_narrowed_by_area_kind_and_words(
    room: Room, arguments: dict[str, object], found: set[str]
) -> None:
    listed = await room.home("query", **arguments)
    assert set(re.findall(r"\((\w+\.\w+)\)", listed)) == found


async def test_hidden_and_diagnostic_entities_are_found_by_id_only(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.add("sensor.lamp_battery", "Lamp battery", "12", device_class="battery", unit_of_measurement="%")
    entry = assistant.entries["sensor.lamp_battery"]
    assert entry is not None
    entry["entity_category"] = "diagnostic"
    everything = await room.home("query")
    assert "switch.decorative_lights" not in everything
    assert "sensor.lamp_battery" not in everything
    assert "Lamp battery (sensor.lamp_battery): 12 %" in await room.home("query", kind="battery")
    assert "switch.decorative_lights" not in await room.home("query", kind="switch")
    assert (await room.home("get", "switch.decorative_lights")).startswith("Decorative Lights")


async def test_large_house_is_summarised_without_filter(room: Room, assistant: HomeAssistantServer) -> None:
    for number in range(70):
        assistant.add(f"light.spot_{number}", f"Spot {number}", area_id="garage")
    overview = await room.home("query")
    assert "Ask again with area, kind or targets." in overview
    assert "Garage: 1 cover, 70 light" in overview
    listed = await room.home("query", area="garage")
    assert listed.count("\n- ") == 60
    assert listed.endswith("11 more are not shown: narrow it down by area, kind or targets.")


async def test_query_without_matches_lists_areas_and_kinds(room: Room) -> None:
    nothing = await room.home("query", kind="submarine")
    assert nothing.startswith("Nothing matches. The areas are: Bedroom, Garage, Kitchen, Living Room. The kinds are: ")
    with pytest.raises(
        ToolError, match=r"There is no area 'attic'\. The areas are: Kitchen, Living Room, Bedroom, Garage"
    ):
        await room.home("query", area="attic")


async def test_area_query_mentions_unassigned_entities_named_after_it(
    room: Room, assistant: HomeAssistantServer
) -> None:
    assistant.add("sensor.pressure", "Kitchen scale pressure", "12")
    assistant.add("light.spot", "Spot over the kitchen table", "on")
    assistant.add("update.kitchen", "Kitchen firmware", "on")
    found = await room.home("query", area="kitchen")
    _, _, apart = found.partition("Not assigned to Kitchen, but named after it:\nNo area:\n")
    assert re.findall(r"\((\w+\.\w+)\)", apart) == [
        *("light.spot", "lock.kitchen_door", "media_player.kitchen", "sensor.pressure")
    ]
    found = await room.home("query", area="kitchen", kind="sensor")
    assert found == (
        "Not assigned to Kitchen, but named after it:\nNo area:\n- Kitchen scale pressure (sensor.pressure): 12"
    )
    assert "lock.kitchen_door" in await room.home("query", "door", area="kitchen")


async def test_details_list_commands_and_settings(room: Room) -> None:
    details = await room.home("get", "hvac", "garage door", "outside temperature")
    assert '  hvac_modes: ["off", "heat", "cool", "auto", "dry", "fan_only"]\n' in details
    assert "  takes: on, off, toggle, option, temperature\n" in details
    garage = details.partition("Garage Door")[2]
    assert "  takes: open, close, stop, toggle\n" in garage
    assert "takes" not in garage.partition("Outside Temperature")[2]


async def test_neither_secrets_nor_faked_lines_are_shown(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.add("light.evil", "Lamp\n- Front Door (lock.front_door): unlocked")
    assistant.change("text.password", "hunter2")
    secret = assistant.states["camera.demo_camera"]["attributes"]["access_token"]
    shown = await room.home("get", "camera.demo_camera", "text.password") + await room.home("query")
    assert secret not in shown
    assert "hunter2" not in shown
    assert "\n- Front Door (lock.front_door): unlocked" not in shown
