"""Reads requests from Open WebUI: its tools, headers that name the user and the chat, parameters, prompts of tasks.

An agent gets the tools that it has chosen, and its prompt loses the parts that need other tools. Their names are those
of `open_webui/tools/builtin.py` and `get_builtin_tools` in `open_webui/utils/tools.py` (0.12.4).

On OpenAI's routes Open WebUI sends headers of the user and the chat if ENABLE_FORWARD_USER_INFO_HEADERS is on. It also
sends headers that an admin adds to the connection, for example `X-OpenWebUI-Task: {{TASK}}`.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from callboard.errors import RequestError
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


CHAT_HEADERS = {
    "chat_id": "x-openwebui-chat-id",
    "message_id": "x-openwebui-message-id",
    "task": "x-openwebui-task",
}
"""The header of each field of a request's chat."""

USER_HEADERS = {
    "id": "x-openwebui-user-id",
    "name": "x-openwebui-user-name",
    "email": "x-openwebui-user-email",
    "role": "x-openwebui-user-role",
}
"""The header of each field of a user. The name is percent-encoded, because headers allow few characters."""

UNSAVED_CHATS = ("local:", "temporary:", "channel:")
"""The prefixes of ids of conversations that Open WebUI does not save as chats."""

MARKER = "### Task:"
"""The beginning of every prompt of a background task, by `open_webui/config.py`."""

TITLE_WORDS = 5

# `add_file_context` and the handlers of skills and searches in `open_webui/utils/middleware.py`.
_CONTEXT = re.compile(
    r"(?:\s*<(attached_files|attached_knowledge|available_skills|context|skill|source)\b[^>]*>.*?</\1>)*+", re.DOTALL
)
_LAST_USER_LINE = re.compile(r"^USER: (.+)$", re.MULTILINE)


def has_own_header(names: Iterable[str]) -> bool:
    """Return whether one of these headers, given in lower case, is specific to Open WebUI."""
    return any(name.startswith("x-openwebui-") for name in names)


def read_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a chat's settings in the form that endpoints accept.

    Open WebUI sends `logit_bias` as the user typed it: `5432:100, 413:-100`. Raises `RequestError` for any other text.
    """
    bias = given.get("logit_bias")
    if not isinstance(bias, str):
        return dict(given)
    pairs = (pair.rpartition(":") for pair in bias.split(",") if pair.strip())
    try:
        return {**given, "logit_bias": {token.strip(): int(value) for token, _, value in pairs}}
    except ValueError:
        raise RequestError(f"logit_bias is {bias!r}: write it as 5432:100, 413:-100") from None


def read_headers(names: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the values of headers, for example of `CHAT_HEADERS`, by the fields that `names` gives them.

    Empty values are left out, and so are placeholders that Open WebUI did not know: a misspelled `{{USER_ID}}` would be
    one user for all.
    """
    values = ((field, headers.get(header, "").strip()) for field, header in names.items())
    return {field: value for field, value in values if value and not value.startswith("{{")}


def strip_context(message: str) -> str:
    """Return the part of a message that the user typed, without the files, skills and search results before it.

    A message without a typed part is returned unchanged.
    """
    typed = message
    if typed.lstrip().startswith(MARKER):
        # DEFAULT_RAG_TEMPLATE of `open_webui/config.py` ends with the context; the user's message follows.
        typed = typed.rpartition("</context>")[2]
    return _CONTEXT.sub("", typed, count=1).strip() or message


def answer_background_prompt(prompt: str) -> str | None:
    """Return an answer to the prompt of a background task, without a model; None for any other prompt.

    The answer is a JSON object with `title`, `tags` and `follow_ups`: each task reads the key that it needs.
    """
    if not prompt.lstrip().startswith(MARKER):
        return None
    asked = _LAST_USER_LINE.search(prompt)
    words = asked[1].split() if asked else []
    title = " ".join(words[:TITLE_WORDS]) or "New chat"
    return json.dumps({"title": title, "tags": ["callboard"], "follow_ups": []}, ensure_ascii=False)
