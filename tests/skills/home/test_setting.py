"""Changes in a house, and refusals before any change."""

from dataclasses import replace
from typing import Any

import pytest

from callboard.errors import InvalidArguments, ToolError, ToolLimit, ToolTimeout
from callboard.skills.home.address import HomeAddress
from callboard.skills.home.connection import connect
from callboard.skills.home.names import find_entity
from callboard.skills.home.skill import describe_outcome
from tests.fakes.home_assistant import TOKEN, HomeAssistantServer, fault
from tests.skills.home.conftest import Room


@pytest.mark.parametrize(
    ("target", "arguments", "calls"),
    [
        ("kitchen lights", {"command": "off"}, [("light.turn_off", {})]),
        (
            "kitchen lights",
            {"command": "on", "level_percent": 40, "color": "Blue"},
            [("light.turn_on", {"brightness_pct": 40, "rgb_color": [0, 0, 255]})],
        ),
        ("bed light", {"color_temperature_kelvin": 2700}, [("light.turn_on", {"color_temp_kelvin": 2700})]),
        ("living room window", {"level_percent": 25}, [("cover.set_cover_position", {"position": 25})]),
        ("front garden", {"command": "close"}, [("valve.close_valve", {})]),
        ("front door", {"command": "unlock"}, [("lock.unlock", {})]),
        (
            "hvac",
            {"temperature": 21.5, "option": "HEAT"},
            [("climate.set_hvac_mode", {"hvac_mode": "heat"}), ("climate.set_temperature", {"temperature": 21.5})],
        ),
        (
            "media_player.living_room",
            {"command": "play", "level_percent": 30},
            [("media_player.media_play", {}), ("media_player.volume_set", {"volume_level": 0.3})],
        ),
        ("media_player.kitchen", {"command": "mute"}, [("media_player.volume_mute", {"is_volume_muted": True})]),
        ("living room fan", {"level_percent": 66}, [("fan.set_percentage", {"percentage": 66})]),
        ("dose", {"value": 3}, [("input_number.set_value", {"value": 3})]),
        ("house mode", {"option": "away"}, [("input_select.select_option", {"option": "Away"})]),
        ("movie night", {"command": "activate"}, [("scene.turn_on", {})]),
        ("0 ground floor", {"command": "start"}, [("vacuum.start", {})]),
    ],
)
async def test_each_kind_of_entity_uses_its_service(
    room: Room,
    assistant: HomeAssistantServer,
    target: str,
    arguments: dict[str, Any],
    calls: list[tuple[str, dict[str, Any]]],
) -> None:
    await room.home("set", target, **arguments)
    assert [(name, data) for name, _, data in assistant.called] == calls


async def test_the_answer_is_the_state_after_and_before_or_that_nothing_changed(room: Room) -> None:
    assert await room.home("set", "kitchen lights", level_percent=40) == (
        "- Kitchen Lights (light.kitchen_lights): on, 40 % (was on, 71 %)"
    )
    assert [report.message for report in room.reports] == ["Kitchen Lights"]
    assert await room.home("set", "bed light", command="off") == (
        "- Bed Light (light.bed_light): the command was sent, but the state has not changed: off"
    )


@pytest.mark.parametrize(
    ("target", "arguments", "told"),
    [
        ("kitchen lights", {"command": "open"}, "it takes on, off, toggle, level_percent, color, color_temperature"),
        ("outside temperature", {"command": "off"}, "is a sensor: it can only be read, not set."),
        ("kitchen lights", {}, "Nothing to set: give a command, or one of level_percent, color"),
        ("kitchen lights", {"command": "off", "level_percent": 10}, "Give either the command off or level_percent"),
        ("bed light", {"color": "mauve"}, "'mauve' is not a known color: give it as #rrggbb, or one of red"),
        ("plain lamp", {"level_percent": 10}, "is a light: it takes on, off, toggle, not level_percent."),
        ("lost lamp", {"command": "on"}, "is unavailable: Home Assistant has no connection to the device."),
    ],
)
async def test_unsupported_change_is_refused_with_abilities(
    room: Room, assistant: HomeAssistantServer, target: str, arguments: dict[str, Any], told: str
) -> None:
    assistant.add("light.plain", "Plain lamp", supported_color_modes=["onoff"])
    assistant.add("light.lost", "Lost lamp", "unavailable", supported_color_modes=["onoff"])
    with pytest.raises(ToolError) as raised:
        await room.home("set", target, **arguments)
    assert told in str(raised.value)
    assert assistant.called == []


async def test_a_turn_makes_three_changes_over_all_its_calls_and_failed_ones_do_not_count(
    room: Room, assistant: HomeAssistantServer
) -> None:
    for _ in range(3):
        with pytest.raises(ToolError, match="There is no"):
            await room.home("set", "nothing such", command="on")
    # One target that does not fit keeps the others from changing.
    with pytest.raises(ToolError, match="is a cover"):
        await room.home("set", "bed light", "garage door", command="on")
    with pytest.raises(ToolError, match="set takes at most 3 targets, not 4"):
        await room.home("set", "bed light", "kitchen lights", "ceiling lights", "ac", command="off")
    assert assistant.called == []
    await room.home("set", "bed light", command="on")
    with pytest.raises(ToolLimit):
        await room.home("set", "kitchen lights", "ceiling lights", "ac", command="off")
    # Each change of the same device counts.
    await room.home("set", "bed light", command="off")
    await room.home("set", "garage door", command="open")
    with pytest.raises(ToolLimit, match="a turn may make 3 changes"):
        await room.home("set", "front door", command="unlock")
    assert await room.home("query", "front door") == "No area:\n- Front Door (lock.front_door): locked"
    assert len(assistant.called) == 3
    room.next_turn()
    await room.home("set", "front door", command="unlock")


async def test_failures_are_reported_beside_successes(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.add("light.lost", "Lost lamp", "unavailable", supported_color_modes=["onoff"])
    assistant.refusals["switch.turn_on"] = fault("home_assistant_error", "Failed to reach the plug")
    with pytest.raises(ToolError) as raised:
        await room.home("set", "AC", "lost lamp", "bed light", command="on")
    assert str(raised.value) == (
        "This failed:\n- Lost lamp (light.lost) is unavailable: Home Assistant has no connection to the device. "
        "Ask the user to check it.\n- AC (switch.ac): Home Assistant refused: Failed to reach the plug\n"
        "This was done:\n- Bed Light (light.bed_light): on (was off)"
    )
    # A command that was not sent does not count.
    await room.home("set", "kitchen lights", command="off")


async def test_late_answer_is_not_taken_for_next_command(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.late.add("cover.open_cover")
    async with connect(HomeAddress.read(assistant.url, TOKEN)) as home:
        hasty = replace(home, command_seconds=0.1)
        with pytest.raises(ToolTimeout, match="It may still happen"):
            await hasty.call("cover.open_cover", "cover.garage_door", {})
        assert len((await home.snapshot()).areas) == 4


async def test_unreadable_state_after_change_is_reported_as_done(room: Room, assistant: HomeAssistantServer) -> None:
    async with connect(HomeAddress.read(assistant.url, TOKEN)) as home:
        before = find_entity(await home.snapshot(), "garage door")
        assistant.rest_status = 503
        assert (await describe_outcome(home, before)).startswith(
            "- Garage Door (cover.garage_door): done, but its new state cannot be read. Home Assistant is not ready"
        )


@pytest.mark.parametrize(
    ("action", "where"), [("set", {"area": "kitchen"}), ("set", {"area": "kitchen", "kind": " "}), ("get", {})]
)
async def test_targets_are_needed(room: Room, action: str, where: dict[str, str]) -> None:
    with pytest.raises(InvalidArguments, match="needs the argument 'targets'"):
        await room.home(action, command="off", **where)


async def test_area_and_kind_select_all_entities(room: Room, assistant: HomeAssistantServer) -> None:
    assistant.add("light.hob", "Hob", "on", "kitchen", supported_color_modes=["onoff"])
    assistant.add("binary_sensor.dusk", "Dusk", "on", "kitchen", device_class="light")
    await room.home("set", area="the kitchen", kind="lights", command="off", targets=[""])
    assert [entity_id for _, entity_id, _ in assistant.called] == ["light.kitchen_lights", "light.hob"]
    with pytest.raises(ToolLimit, match="a turn may make 3 changes"):
        await room.home("set", area="kitchen", kind="light", command="on")
    room.next_turn()
    with pytest.raises(ToolError, match="Nothing of the kind cover in Kitchen takes that"):
        await room.home("set", area="kitchen", kind="cover", command="on")
    assert len(assistant.called) == 2


async def test_area_and_settings_select_all_entities_of_the_only_kind_that_takes_them(
    room: Room, assistant: HomeAssistantServer
) -> None:
    await room.home("set", area="kitchen", level_percent=40)
    await room.home("set", area="living room", temperature=21)
    assert [(name, entity_id) for name, entity_id, _ in assistant.called] == [
        ("light.turn_on", "light.kitchen_lights"),
        ("climate.set_temperature", "climate.hvac"),
    ]
    with pytest.raises(ToolError, match="in Living Room take that: cover, fan, light"):
        await room.home("set", area="living room", level_percent=40)
    with pytest.raises(ToolError, match="Nothing in Kitchen takes that"):
        await room.home("set", area="kitchen", temperature=21)
    assert len(assistant.called) == 2


FILLED = {
    "area": "",
    "kind": "",
    "color": "",
    "color_temperature_kelvin": 0,
    "temperature": 0,
    "option": "",
    "value": 0,
}


@pytest.mark.parametrize(
    ("target", "arguments", "call"),
    [
        ("bed light", {"command": "on", "level_percent": 0}, ("light.turn_on", {})),
        ("bed light", {"command": "", "level_percent": 40}, ("light.turn_on", {"brightness_pct": 40})),
        ("bed light", {"command": None, "level_percent": 0}, ("light.turn_on", {"brightness_pct": 0})),
        ("hvac", {"level_percent": 0, "temperature": 21}, ("climate.set_temperature", {"temperature": 21})),
    ],
)
async def test_empty_arguments_are_ignored(
    room: Room, assistant: HomeAssistantServer, target: str, arguments: dict[str, Any], call: tuple[str, Any]
) -> None:
    await room.home("set", target, **FILLED | arguments)
    assert [(name, data) for name, _, data in assistant.called] == [call]
