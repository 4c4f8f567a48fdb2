"""
title: Callboard approvals
author: Callboard
version: 0.1.0
license: MIT
description: For use with the pipe: runs a call that a user approves later, and tells other models of the agents' calls.
required_open_webui_version: 0.11.4
"""

# A function of type Filter, active for all models. The pipe's id is the id of this function without `SUFFIX`.
#
# When a user approves a pending card, Open WebUI looks the tool up again, and knows no tool of a Callboard server. This
# function adds it, and the pipe asks the server to run the call. Before an answer goes on, the pipe also writes onto
# its cards how their calls have ended: Open WebUI reads the message after this function, and overwrites later
# changes.
#
# Other models in the same chat would get a card's title as the name of the tool, which endpoints refuse, or the markup
# of the pipe's blocks. This function gives them the calls and the results.

import html
import json
import logging
import re
from typing import Any

log = logging.getLogger("callboard.filter")

Json = dict[str, Any]

SUFFIX = "_approvals"  # At the end of this function's id, after the id of the pipe.

LABEL = " · "  # Behind the tool's name on a card of an older pipe, or of a version of Open WebUI before 0.12.2.
# What the pipe adds to the text of an answer, each on lines of its own: the block of a call, with the call's id, name,
# tool, arguments, result and round; the block of a thought; a notice; the question above a card. In the text of an
# agent's model, the pipe breaks tags.
DRAWN = re.compile(
    r'^(?:<details type="tool_calls" done="\w+"(?: status="\w+")? id="([^">\n]+)" name="([^">\n]+)" '
    r'(?:tool="([^">\n]+)" )?arguments="([^">\n]*)"(?: result="([^">\n]*)")?(?: files="[^">\n]*")? '
    r'round="(\d+)"[^>\n]*>\n'
    r"<summary>Tool Executed</summary>\n</details>"
    r'|<details type="(?:reasoning" [^>\n]*>\n<summary>Thought|result">\n<summary>[^<\n]*)</summary>\n[^<]*</details>'
    r"|> \*\*Callboard:\*\* .*|(?:\*\*)?\u200b\u200b.*)$",
    re.MULTILINE,
)
INNER_CALLS = re.compile(r"\A(?:↳ .*\n)+\n?")  # Above a result: the calls that were made inside this call.
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")  # Endpoints refuse it in names and ids.


class Filter:
    """The class that Open WebUI loads."""

    async def inlet(self, body: Json, __id__: str = "", __model__: Json | None = None, __request__: Any = None) -> Json:
        """Give a model of another provider the calls of the agents' earlier answers."""
        pipe_ids = find_pipe_ids(__model__ or {})
        try:
            # The pipe of another server also has such a function; its models get the calls from their server.
            loaded = getattr(__request__.app.state, "FUNCTIONS", {})
            is_ours = any(hasattr(loaded.get(pipe_id), "offer_approved") for pipe_id in pipe_ids)
            if not is_ours and __id__.removesuffix(SUFFIX) not in pipe_ids:
                body["messages"] = tell_calls(body["messages"])
        except Exception:
            # Open WebUI would refuse the request. Whatever the messages hold, it is not this function's to refuse.
            log.exception("Callboard: the calls of earlier answers could not be read")
        return body

    async def request(
        self,
        body: Json,
        __id__: str = "",
        __metadata__: Json | None = None,
        __user__: Json | None = None,
        __model__: Json | None = None,
        __request__: Any = None,
        __event_call__: Any = None,
    ) -> Json:
        """Prepare a request that continues an answer of the pipe: its cards, and the tools of approved calls."""
        metadata = __metadata__ or {}
        pipe_id = __id__.removesuffix(SUFFIX)
        if not metadata.get("tool_approval_resume") or pipe_id not in find_pipe_ids(__model__ or {}):
            return body
        try:
            from open_webui.functions import get_function_module_by_id

            pipe = await get_function_module_by_id(__request__, pipe_id)
            await pipe.offer_approved(__user__ or {}, metadata, __request__, __event_call__)
        except Exception:
            # Open WebUI would end the answer. Without the tool, its card says that there is none.
            log.exception("Callboard: the tools of approved calls could not be added")
        return body


def find_pipe_ids(model: Json) -> set[str]:
    """Return the id of the pipe that provides the model, or the model that a preset is based on, if a pipe does so."""
    base = (model.get("info") or {}).get("base_model_id")
    return {str(one).partition(".")[0] for one in (model.get("id"), base)}


def tell_calls(messages: list[Json]) -> list[Json]:
    """Return the messages, in which the calls that the pipe has drawn are calls with their tools' names."""
    told: list[Json] = []
    ids: dict[str, str] = {}  # Of the pipe's calls, as endpoints accept them.
    for message in messages:
        role, content = message.get("role"), message.get("content")
        text = content if isinstance(content, str) else ""
        if role == "assistant":
            if calls := [tell_call(call, ids) for call in message.get("tool_calls") or ()]:
                message = message | {"tool_calls": calls}
            told += split_answer(message, ids) if DRAWN.search(text) else [message]
        elif role == "system":
            # It has the thread of a channel as text, where the name of a model is before its answer.
            words, count = DRAWN.subn("", text.replace(": <details", ":\n<details"))
            told.append(message | {"content": words} if count else message)
        elif message.get("tool_call_id") in ids:
            result = INNER_CALLS.sub("", text) if text else content
            told.append(message | {"tool_call_id": ids[message["tool_call_id"]], "content": result})
        else:
            told.append(message)
    return told


def tell_call(call: Json, ids: dict[str, str]) -> Json:
    """Return a call of one of Open WebUI's items: plainly, if the item is the pipe's or no endpoint would accept it."""
    function = call["function"]
    name, label, _ = function["name"].partition(LABEL)
    is_plain = not label and isinstance(read_json(function["arguments"]), dict)
    return call if is_plain else make_call(call["id"], name, function["arguments"], ids)


def split_answer(message: Json, ids: dict[str, str]) -> list[Json]:
    """Return the texts of an answer, its calls and their results, in order."""
    told: list[Json] = []
    answer: Json = {"tool_calls": []}  # The last of them that is the model's.
    last_round = ""
    pieces = DRAWN.split(message["content"])
    for place in range(0, len(pieces), 7):
        text, *call = pieces[place : place + 7]
        if text.strip():
            if "tool_calls" in answer:
                told.append(answer := {"role": "assistant", "content": ""})
            answer["content"] = f"{answer['content']}\n\n{text.strip()}".strip()
        # A call without a result has not ended. A second one of its id is a copy, because models imitate blocks.
        if not call or call[4] is None or html.unescape(call[0]) in ids:
            continue
        # Older blocks have no `tool`.
        call[2] = call[2] or call[1].partition(LABEL)[0]
        call_id, _, name, arguments, result, round_ = map(html.unescape, call)
        if round_ != last_round and "tool_calls" in answer:
            told.append(answer := {"role": "assistant", "content": ""})
        last_round = round_
        made = make_call(call_id, name, arguments, ids)
        answer.setdefault("tool_calls", []).append(made)
        words = INNER_CALLS.sub("", str(read_json(result)))
        told.append({"role": "tool", "tool_call_id": made["id"], "content": words})
    if message.get("tool_calls"):
        if "tool_calls" in answer:
            told.append(answer := {"role": "assistant", "content": ""})
        answer["tool_calls"] = message["tool_calls"]
    return told


def make_call(call_id: str, name: str, arguments: str, ids: dict[str, str]) -> Json:
    """Return a call that every endpoint accepts; one that never started has half its arguments, so it gets none."""
    ids[call_id] = NOT_IN_NAMES.sub("_", call_id)
    arguments = arguments if isinstance(read_json(arguments), dict) else "{}"
    function = {"name": NOT_IN_NAMES.sub("_", name), "arguments": arguments}
    return {"id": ids[call_id], "type": "function", "function": function}


def read_json(text: str) -> object:
    """Return the value; None if the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
