"""The demo agent: shows every kind of tool call without a model.

It has a scripted model and real tools. Any prompt plays a selection of scenes; a word in the prompt picks a scene. The
script has no state: it reads from the messages which scenes have been played, so it also shows which earlier calls a
model gets to see.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard._agents.agent import Agent
from callboard._agents.demo_tools import (
    BIG_CHARS,
    NASTY,
    book_table,
    delete_draft,
    draw_picture,
    echo_nasty,
    generate_image,
    get_weather,
    paint_dusk,
    read_archive,
    search_archive,
    sell_ticket,
    show_clock,
)
from callboard.models import (
    ChatDict,
    ModelDelta,
    ModelRequest,
    Pause,
    ReasoningDelta,
    ScriptedModel,
    TextDelta,
    ToolCallDelta,
    content_text,
    task_answer,
    typed,
    user_text,
)
from callboard.skills import Skill

ARGUMENTS_PIECE_CHARS = 12
FIRST_WORDS = 8


@dataclass(frozen=True, slots=True)
class Scene:
    """One round: a text, the calls (tool name and arguments), a text after their results.

    `thought` is the model's reasoning, which comes first.
    """

    before: str
    calls: Sequence[tuple[str, Mapping[str, Any]]]
    after: str
    thought: str = ""


OUTCOME = "[outcome]"
"""A placeholder for the outcome of a call that asks the user."""

WEATHER = Scene(
    "Two lookups at once, and one of them takes longer: each shows its result as soon as it has one.\n\n",
    (("get_weather", {"city": "Lisbon", "seconds": 1.0}), ("get_weather", {"city": "Oslo", "seconds": 2.5})),
    "Both cities have answered.",
)
SLOW = Scene(
    "Now something slow, which says how far it is while it works.\n\n",
    (("generate_image", {"prompt": "an empty stage at dawn", "seconds": 3.0}),),
    "The picture is ready.",
)
FAIL = Scene(
    "And a call that fails: it turns red, and the run goes on.\n\n",
    (("book_table", {"restaurant": "The Green Room", "guests": 4, "time": "19:30", "seconds": 1.0}),),
    "The table could not be had: the restaurant said it is fully booked. I would try a later time or another place.",
)
SCENES: Mapping[str, Scene] = {
    "slow": SLOW,
    "fail": FAIL,
    "big": Scene(
        f"Here comes a result of {BIG_CHARS:,} characters. What you see of it is cut; the server keeps all of it.\n\n",
        (("read_archive", {"title": "As You Like It", "characters": BIG_CHARS}),),
        "That was long. I have read every line.",
    ),
    "nasty": Scene(
        f"Text and a result that break pages which show them carelessly: {NASTY}\n\n"
        "And a code fence that is never closed:\n\n```python\nprint('still open')\n",
        (("echo_nasty", {"text": NASTY}),),
        f"If you can read this and the page's title has not changed, all is well. Once more: {NASTY}",
    ),
    "think": Scene(
        "I have thought about it; what I thought is folded away above.\n\n",
        (("get_weather", {"city": "Oslo", "seconds": 1.0}),),
        "Now I know.",
        "The user wants to see me think. I should look at the weather first: <b>Oslo</b>, not Lisbon. ",
    ),
    "picture": Scene(
        "A tool can give back a picture.\n\n", (("draw_picture", {"width": 256}),), "It stands under the call, above."
    ),
    "page": Scene("A tool can give back a page.\n\n", (("show_clock", {}),), "The page counts down."),
    "cite": Scene(
        "I look it up.\n\n",
        (("search_archive", {"query": "old theatres"}),),
        "The Rose was found again in 1989 [second]; the Globe had burned down in 1613 [first].",
    ),
    "approve": Scene(
        "Some tools ask you before they run.\n\n",
        (("sell_ticket", {"play": "As You Like It", "seats": 2}),),
        OUTCOME,
    ),
    "delete": Scene(
        "I ask you before I delete anything.\n\n",
        (("delete_draft", {"title": "As You Like It, first draft"}),),
        OUTCOME,
    ),
}
"""The scenes, by the word of the prompt that picks each."""

FULL_RANGE = (WEATHER, SLOW, FAIL)
EVERYTHING = (WEATHER, *(SCENES[word] for word in ("slow", "think", "picture", "page", "cite", "fail", "delete")))
"""One scene of each kind, without those that try to break pages."""
ICON_PIXELS = 48
SUGGESTIONS = ("Show me everything", "Something slow", "Ask me before you delete", "A picture")
HINT = (
    f"\n\nWords to try: {', '.join(f'`{word}`' for word in SCENES)}, alone or together. "
    "And `remember` makes me say what I know of earlier calls."
)


def demo_agent(pace: float = 1.0) -> Agent:
    """Return the demo agent; with `pace` 0 it never waits."""
    tools = (
        get_weather,
        generate_image,
        book_table,
        read_archive,
        echo_nasty,
        draw_picture,
        show_clock,
        search_archive,
        sell_ticket,
        delete_draft,
    )
    skill = Skill("demo", "Shows every kind of tool call.", tools=tools)
    model = ScriptedModel(lambda request: demo_script(request, pace), name="demo", pace=pace)
    description = "Shows what tool calls look like; needs no model. Ask it anything, or say: slow, fail, big, nasty."
    icon = f"data:image/png;base64,{base64.b64encode(paint_dusk(ICON_PIXELS)).decode()}"
    return Agent("demo", description, (skill,), name="Demo", model=model, suggestions=SUGGESTIONS, icon=icon)


def demo_script(request: ModelRequest, pace: float = 1.0) -> Iterator[ModelDelta | Pause]:
    """Yield the demo's next texts and calls, which follow from the conversation so far."""
    if (answer := task_answer(request)) is not None:
        yield TextDelta(answer)
        return
    asked = user_text(request)
    if _names("remember", asked):
        yield from typed(_list_earlier_calls(request.messages))
        return
    if _names("everything", asked):
        scenes = list(EVERYTHING)
    else:
        scenes = [scene for word, scene in SCENES.items() if _names(word, asked)] or list(FULL_RANGE)
    played = _count_rounds(request.messages)
    if played:
        yield from typed(_fill_in(scenes[min(played, len(scenes)) - 1].after, request.messages))
    if played >= len(scenes) or not request.tools:
        yield from typed(HINT)
        return
    if played:
        yield TextDelta("\n\n")
    for word in typed(scenes[played].thought):
        yield ReasoningDelta(word.text) if isinstance(word, TextDelta) else word
    yield from typed(scenes[played].before)
    for index, (name, arguments) in enumerate(scenes[played].calls):
        yield from _write_call(index, f"call_{played}_{index}", name, _pace(arguments, pace))


def _write_call(index: int, call_id: str, name: str, arguments: Mapping[str, Any]) -> Iterator[ModelDelta]:
    """Yield a call as endpoints stream it: the name first, then pieces of the arguments."""
    yield ToolCallDelta(index=index, id=call_id, name=name, arguments="")
    text = json.dumps(arguments, ensure_ascii=False)
    for start in range(0, len(text), ARGUMENTS_PIECE_CHARS):
        yield ToolCallDelta(index=index, arguments=text[start : start + ARGUMENTS_PIECE_CHARS])


def _pace(arguments: Mapping[str, Any], pace: float) -> dict[str, Any]:
    return {name: round(value * pace, 3) if name == "seconds" else value for name, value in arguments.items()}


def _names(word: str, text: str) -> bool:
    return re.search(rf"\b{word}\b", text, re.IGNORECASE) is not None


def _count_rounds(messages: Sequence[ChatDict]) -> int:
    """Return the number of rounds since the last message of the user."""
    played = 0
    for message in reversed(messages):
        if message.get("role") == "user":
            break
        played += bool(message.get("tool_calls"))
    return played


def _fill_in(text: str, messages: Sequence[ChatDict]) -> str:
    """Return the text with its placeholders filled in from the last result: source numbers, or the outcome."""
    result = content_text(messages[-1].get("content"))
    numbers = re.findall(r'"source_number":(\d+)', result)
    for word, number in zip(("[first]", "[second]"), numbers, strict=False):
        text = text.replace(word, f"[source{number}]")
    refusal = result.removeprefix("Error: ").partition(". ")[0].rstrip(".")
    return text.replace(OUTCOME, f"{refusal}." if result.startswith("Error: ") else "You agreed, and it ran.")


def _list_earlier_calls(messages: Sequence[ChatDict]) -> str:
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    if not calls:
        return f"I remember no tool call in this chat yet. Ask me anything first.{HINT}"
    results = {
        message.get("tool_call_id"): content_text(message.get("content"))
        for message in messages
        if message.get("role") == "tool"
    }
    lines = [f"I remember {len(calls)} tool {'call' if len(calls) == 1 else 'calls'}:\n"]
    for call in calls:
        words = " ".join(results.get(call["id"], "no result").split()[:FIRST_WORDS])
        # As code, because a result may contain Markdown.
        lines.append(f"- `{call['function']['name']}`: `{words.replace('`', chr(39))}`")
    return "\n".join(lines)
