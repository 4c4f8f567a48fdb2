"""Chooses the tools of Open WebUI that an agent gets, and removes parts of its prompt that need other tools.

The names are those of `open_webui/tools/builtin.py` and `get_builtin_tools` in `open_webui/utils/tools.py` (0.12.4).
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from callboard_protocol import OpenWebUITool

OpenWebUITools = Literal["attached", "all", "none"] | Sequence[str]
"""The choice of Open WebUI's tools for an agent; a list has patterns of names, such as `search_*`."""

MAX_NAMED = 8
"""The maximum number of names in the status about tools that the agent cannot use."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of Open WebUI: its name for people, and the built-in tools that serve it."""

    label: str
    tools: frozenset[str]


_KNOWLEDGE_TOOLS = frozenset(
    [
        "list_knowledge",
        "search_knowledge_files",
        "grep_knowledge_files",
        "query_knowledge_files",
        "view_file",
        "view_knowledge_file",
        "view_note",
        "kb_exec",
    ]
)
FEATURES: Mapping[str, Feature] = {
    "knowledge": Feature("knowledge", _KNOWLEDGE_TOOLS),
    "skills": Feature("skills", frozenset({"view_skill", "read_skill_file", "grep_skill_files"})),
    "web_search": Feature("web search", frozenset({"search_web", "fetch_url"})),
    "image_generation": Feature("image generation", frozenset({"generate_image", "edit_image"})),
    "code_interpreter": Feature("code interpreter", frozenset({"execute_code"})),
    "memory": Feature(
        "memory",
        frozenset(
            [
                "search_memories",
                "list_memory_paths",
                "read_memory_path",
                "list_memories",
                "update_memory",
                "add_memory",
                "replace_memory_content",
                "delete_memory",
            ]
        ),
    ),
}
"""The features that a user or a preset switches on, by their names in Open WebUI."""

REPLACED_BY_SKILL: Mapping[str, frozenset[str]] = {
    "memory": FEATURES["memory"].tools,
    "web": FEATURES["web_search"].tools,
    "history": frozenset({"search_chats", "view_chat"}),
    "time": frozenset({"get_current_timestamp", "calculate_timestamp"}),
}
"""Built-in tools with the same purpose as a skill of Callboard, by the skill's name: the agent keeps its skill."""

_PROMPTS = (
    ("<attached_knowledge>", "</attached_knowledge>", FEATURES["knowledge"].tools),
    ("<available_skills>", "</available_skills>", frozenset({"view_skill"})),
    # CODE_INTERPRETER_PYODIDE_PROMPT of `open_webui/config.py`.
    (
        "##### Pyodide Environment\n",
        "os.listdir('/mnt/uploads')` to discover available files.",
        FEATURES["code_interpreter"].tools,
    ),
)
"""The beginning and the end of each part that Open WebUI adds to a system prompt; the part needs one of the tools."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that an agent gets.

    `usable` are the names of all tools that the agent can use or no longer needs. `unavailable` are the names, for
    people, of tools and features that the user attached and the agent cannot use.
    """

    tools: Sequence[OpenWebUITool] = ()
    usable: AbstractSet[str] = frozenset()
    unavailable: Sequence[str] = ()

    @property
    def status(self) -> str:
        """The status line for the user; empty if the agent can use everything."""
        if not self.unavailable:
            return ""
        names = ", ".join(self.unavailable[:MAX_NAMED])
        more = len(self.unavailable) - MAX_NAMED
        return f"Not available to this agent: {names}" + (f" and {more} more" if more > 0 else "")


def choose_tools(
    given: Sequence[OpenWebUITool],
    features: Collection[str],
    choice: OpenWebUITools,
    own_tools: AbstractSet[str] = frozenset(),
    own_skills: Collection[str] = (),
) -> Offer:
    """Return the tools for an agent with this `choice`.

    `features` are those that the user or the preset has switched on. `own_tools` are the tools that the agent has
    already, by their names. A tool is left out if it is one of them, or if the agent has a skill with the same purpose.
    """
    replaced = frozenset().union(*(REPLACED_BY_SKILL.get(skill, ()) for skill in own_skills))
    attached = frozenset().union(*(FEATURES[name].tools for name in features if name in FEATURES))

    def is_chosen(tool: OpenWebUITool) -> bool:
        match choice:
            case "all":
                return True
            case "none":
                return False
            case "attached":
                return not tool.is_builtin or tool.name in attached
            case patterns:
                return any(fnmatchcase(tool.name, pattern) for pattern in patterns)

    tools: dict[str, OpenWebUITool] = {}
    for tool in given:
        is_own = tool.name in own_tools or (tool.is_builtin and tool.name in replaced)
        if not is_own and is_chosen(tool):
            tools.setdefault(tool.name, tool)
    usable = frozenset(tools.keys() | own_tools | replaced)
    unavailable = [FEATURES[name].label for name in FEATURES if name in features and not FEATURES[name].tools & usable]
    unavailable += [tool.name for tool in given if not tool.is_builtin and tool.name not in usable]
    return Offer(tuple(tools.values()), usable, tuple(unavailable))


def has_attached_knowledge(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether Open WebUI has listed attached knowledge in the system prompt."""
    return any("<attached_knowledge>" in text for message in messages for text in _system_texts(message))


def remove_unusable_prompts(messages: Sequence[dict[str, Any]], tools: AbstractSet[str]) -> list[dict[str, Any]]:
    """Return the messages without the parts of system prompts that need tools other than `tools`."""
    parts = [(begin, end) for begin, end, needed in _PROMPTS if not needed & tools]
    cleaned = []
    for message in messages:
        if any(begin in text for begin, _ in parts for text in _system_texts(message)):
            message = {**message, "content": _remove(message["content"], parts)}
        cleaned.append(message)
    return cleaned


def _system_texts(message: Mapping[str, Any]) -> list[str]:
    if message.get("role") not in ("system", "developer"):
        return []
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if isinstance(part.get("text"), str)]


def _remove(content: Any, parts: Sequence[tuple[str, str]]) -> Any:
    if isinstance(content, list):
        return [{**part, "text": _remove(part["text"], parts)} if "text" in part else part for part in content]
    for begin, end in parts:
        content = _remove_part(content, begin, end)
    return content.strip()


def _remove_part(text: str, begin: str, end: str) -> str:
    # Without a regular expression, which would take quadratic time for many beginnings without an end.
    kept = []
    at = 0
    while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start)) >= 0:
        kept.append(text[at:start].rstrip())
        at = stop + len(end)
    return "".join([*kept, text[at:]])
