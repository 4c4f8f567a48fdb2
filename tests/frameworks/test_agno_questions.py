"""Questions of Agno's tools to the user, and the effect of the answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from callboard_protocol import InputRequest, ToolCallError
from tests.collecting import TESTS_RUN
from tests.frameworks.scenario import calls, says, scenario
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from agno.tools import tool
    from agno.tools.user_control_flow import UserControlFlowTools
    from agno.tools.user_feedback import UserFeedbackTools

    from tests.frameworks.agno_agents import solo


async def test_agno_questions_reach_user_and_answers_reach_model(tmp_path: Path) -> None:
    fields = '{"user_input_fields": [{"field_name": "age", "field_type": "int", "field_description": "Your age?"}]}'
    asked = scenario([calls(("get_user_input", fields)), says("So old!")], reply={"age": "42"})
    seen, _ = await perform(solo(UserControlFlowTools()), asked, tmp_path)
    assert seen.lines(in_order=True)[1:] == ["ask 1 ", 'result 1 {"age":42}', "say So old!", "done stop"]
    assert '"value": 42' in seen.sent()[-1]


@pytest.mark.parametrize(
    ("is_multiple", "reply", "chosen"),
    [
        (True, {"chosen": ["red", "blue"]}, ["red", "blue"]),
        (True, {"chosen": "2, 1"}, ["blue", "red"]),
        (True, {"chosen": ["blue"], "other": "green"}, ["blue", "green"]),
        (False, "2", ["blue"]),
        (False, "green", ["green"]),
    ],
)
async def test_options_are_choices_and_answer_is_passed_on(
    tmp_path: Path, is_multiple: bool, reply: Any, chosen: list[str]
) -> None:
    options = [{"label": "red", "description": "as blood"}, {"label": "blue"}]
    asking = {"question": "Which?", "header": "Colour", "multi_select": is_multiple, "options": options}
    asked = scenario([calls(("ask_user", json.dumps({"questions": [asking]}))), says("Fine.")], reply=reply)
    seen, _ = await perform(solo(UserFeedbackTools()), asked, tmp_path)
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert "red: as blood" in question.message
    told = json.dumps({"Which?": chosen}, separators=(",", ":"))
    assert f"result 1 {told}" in seen.lines(in_order=True)
    assert f'"selected": {json.dumps(chosen)}' in seen.sent()[-1]


@pytest.mark.parametrize(
    ("declared", "reply", "told"),
    [
        ({"requires_user_input": True, "user_input_fields": ["b"]}, {"b": "3"}, "5"),
        ({"requires_user_input": True, "user_input_fields": ["b"]}, False, "the question was declined"),
        ({"requires_user_input": True, "user_input_fields": ["b"]}, None, "no answer came in time"),
        ({"external_execution": True}, None, "to be run outside"),
    ],
)
async def test_paused_tool_gets_answer_or_model_gets_reason(
    declared: dict[str, Any], reply: Any, told: str, tmp_path: Path
) -> None:
    waiting = tool(**declared)(Toolbox().plain("add"))
    asked = scenario([calls(("add", '{"a": 2}')), says("So be it.")], reply=reply)
    seen, _ = await perform(solo(waiting), asked, tmp_path)
    assert told in seen.sent()[-1]
    assert seen.lines(in_order=True)[-2:] == ["say So be it.", "done stop"]
    failed = [event for event in seen.events if isinstance(event, ToolCallError)]
    assert bool(failed) == (told != "5")
