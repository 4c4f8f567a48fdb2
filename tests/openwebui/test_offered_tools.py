"""The parts of Open WebUI's prompt that need tools, and the choice of tools."""

from typing import Any

import pytest

from callboard.openwebui.requests import FEATURES, choose_tools, remove_unusable_prompts
from callboard_protocol import OpenWebUITool

KNOWLEDGE = '<attached_knowledge>\n<knowledge type="collection" id="1" name="House"/>\n</attached_knowledge>'
SKILLS = "<available_skills>\n<skill>\n<id>1</id>\n<name>Tea</name>\n</skill>\n</available_skills>"
# CODE_INTERPRETER_PYODIDE_PROMPT of 0.12.4, with its middle left out.
INTERPRETER = (
    "##### Pyodide Environment\n\n- This Python environment runs via Pyodide in the browser.\n\n"
    "##### Persistent File System\n\n- User-uploaded files are available at `/mnt/uploads/`.\n"
    "- Use `import os; os.listdir('/mnt/uploads')` to discover available files."
)


@pytest.mark.parametrize(
    ("part", "tool"), [(KNOWLEDGE, "query_knowledge_files"), (SKILLS, "view_skill"), (INTERPRETER, "execute_code")]
)
def test_part_of_the_prompt_is_removed_unless_its_tool_is_offered(part: str, tool: str) -> None:
    prompt: list[dict[str, Any]] = [{"role": "system", "content": f"Be kind.\n\n{part}\n\nBe brief."}]
    assert remove_unusable_prompts(prompt, {tool}) == prompt
    [removed] = remove_unusable_prompts(prompt, {"another"})
    assert removed["content"] == "Be kind.\n\nBe brief."


def test_part_of_a_prompt_of_several_texts_is_removed() -> None:
    parts = [{"type": "text", "text": f"Be kind. {KNOWLEDGE}"}, {"type": "image_url", "image_url": {"url": "u"}}]
    [removed] = remove_unusable_prompts([{"role": "system", "content": parts}], set())
    assert removed["content"] == [{"type": "text", "text": "Be kind."}, parts[1]]


def test_words_of_the_user_stay() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": KNOWLEDGE}, {"role": "assistant", "content": None}]
    assert remove_unusable_prompts(messages, set()) == messages


@pytest.mark.parametrize("feature", FEATURES)
def test_feature_is_served_by_its_own_tools(feature: str) -> None:
    for name in FEATURES[feature].tools:
        tool = OpenWebUITool(name=name, is_builtin=True)
        assert choose_tools([tool], [feature], "attached").tools == (tool,)
        assert choose_tools([tool], [], "attached").tools == ()
    assert choose_tools([], [feature], "attached").unavailable == (FEATURES[feature].label,)


def test_status_names_a_few_and_counts_the_rest() -> None:
    tools = [OpenWebUITool(name=f"tool_{number}") for number in range(11)]
    assert choose_tools(tools, (), "none").status.endswith("tool_6, tool_7 and 3 more")
