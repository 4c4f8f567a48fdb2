"""A small model of how Open WebUI handles the pipe's text and dicts.

The block regexes are its own, unchanged from 0.6 to 0.12 (src/lib/utils/marked/extension.ts); the reducer follows
`handle_responses_streaming_event` (open_webui/utils/response.py, 0.12.4).
"""

import html
import json
import re
from dataclasses import dataclass
from typing import Any

# JavaScript's `\s`, which has other characters than Python's.
SPACES = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
OPEN_TAG = re.compile(rf"<details([{SPACES}]+[^>]*)?>\n")
ATTRIBUTE = re.compile(r'(\w+)="([^\n\r\u2028\u2029]*?)"')
FENCE = re.compile(r" {0,3}(`{3,}(?=[^`\n]*(?:\n|\Z))|~{3,})[^\n]*(?:\n|\Z)")
# What is removed before a text is drawn if an admin has switched the model's citations off (ContentRenderer.svelte).
CITATION = re.compile(rf"[{SPACES}]*(\[[0-9]+(#[^,\]{SPACES}]+)?(,[{SPACES}]*[0-9]+(#[^,\]{SPACES}]+)?)*\])+")
# Blocks that go on until their end, whatever is between: definitions of links, and formulas (katex-extension.ts).
SPANS = re.compile(
    r" {0,3}\[(?!\s*\])(?:\\.|[^\[\]\\])+\]: *(?:\n *)?[^<\s]\S*(?:(?: +(?:\n *)?| *\n *)\([^()]*\))? *(?:\n+|\Z)"
    r"|\$\$\n(?:\\.|[^\\])+?\n\$\$|\\\[\n(?:\\.|[^\\])+?\n\\\]",
    re.DOTALL,
)
HTML_BLOCKS = (
    (re.compile(r" {0,3}<!--(?!-?>)"), re.compile(r"-->[^\n]*\n?")),
    (re.compile(rf" {{0,3}}<(script|pre|style|textarea)[{SPACES}>]", re.IGNORECASE | re.ASCII), None),
    (re.compile(r" {0,3}<\?"), re.compile(r"\?>")),
    (re.compile(r" {0,3}<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(r" {0,3}<![A-Z]"), re.compile(r">")),
)


@dataclass(frozen=True)
class Block:
    attributes: dict[str, str]
    source: str

    def value(self, name: str) -> Any:
        """An attribute as the browser shows it: entities decoded, then JSON."""
        text = html.unescape(self.attributes[name])
        try:
            return json.loads(text)
        except ValueError:
            return text


def details_end(text: str, start: int) -> int | None:
    """Return the end of the block that opens at `start`; literal tags are counted anywhere, also inside code."""
    depth = 0
    for tag in re.compile(r"<details|</details>").finditer(text, start):
        depth += 1 if tag[0] == "<details" else -1
        if depth == 0:
            return tag.end()
    return None


def tool_blocks(text: str) -> list[Block]:
    """The tool call blocks that are drawn for a message, nested ones included."""
    text = re.sub(r"\r\n|\r", "\n", text)
    blocks: list[Block] = []
    position = 0
    while position < len(text):
        if (tag := OPEN_TAG.match(text, position)) and (end := details_end(text, position)):
            attributes = dict(ATTRIBUTE.findall(tag[1] or ""))
            if attributes.get("type") == "tool_calls":
                blocks.append(Block(attributes, text[position:end]))
            else:
                blocks += tool_blocks(html.unescape(text[tag.end() : end - len("</details>")]))
            position = end
        elif span := SPANS.match(text, position):
            position = span.end()
        elif fence := FENCE.match(text, position):
            closing = re.compile(rf"^ {{0,3}}{re.escape(fence[1])}[`~]* *(?=\n|\Z)", re.MULTILINE)
            found = closing.search(text, fence.end())
            position = found.end() if found else len(text)
        elif block_end := html_block_end(text, position):
            position = block_end
        else:
            line_end = text.find("\n", position)
            position = len(text) if line_end < 0 else line_end + 1
    return blocks


def html_block_end(text: str, position: int) -> int | None:
    for opening, closing in HTML_BLOCKS:
        if begun := opening.match(text, position):
            end = closing or re.compile(rf"</{begun[1]}>", re.IGNORECASE)
            found = end.search(text, begun.end() if closing is None or begun[0][-1] != "-" else begun.end() - 2)
            line_end = text.find("\n", found.end()) if found else -1
            return len(text) if line_end < 0 else line_end + 1
    return None


def reduce(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the message items after all updates; fail if Open WebUI would misplace or lose one."""
    items: list[dict[str, Any]] = []
    for update in updates:
        if update.get("type") == "response.output_item.added":
            # Without an index, pages insert items before the last one.
            assert update["output_index"] == len(items)
            assert update["item"]["content"] == [{"type": "output_text", "text": ""}]
            assert update["item"]["id"] not in {item["id"] for item in items}
            items.append(json.loads(json.dumps(update["item"])))
        else:
            items = change(update, items)
    return items


def reduce_native(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items after all updates: `added` with a known id replaces that item."""
    items: list[dict[str, Any]] = []
    for update in updates:
        if update.get("type") == "response.output_item.added":
            index = update["output_index"]
            item = json.loads(json.dumps(update["item"]))
            known = [
                place
                for place, one in enumerate(items)
                if one["id"] == item["id"]
                or (one["type"], one.get("call_id", "")) == (item["type"], item.get("call_id"))
            ]
            assert (known or [len(items)]) == [index], "the browser goes by the id, the backend by the index"
            items[index : index + 1] = [item]
        else:
            items = change(update, items)
    return items


def change(update: dict[str, Any], items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items after an update that adds none."""
    match update.get("type"):
        case "response.completed":
            return whole(update, items)
        case "response.output_text.delta":
            items[update["output_index"]]["content"][update["content_index"]]["text"] += update["delta"]
        case "response.output_text.done":
            items[update["output_index"]]["content"][update["content_index"]]["text"] = update["text"]
    return items


def whole(update: dict[str, Any], items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items after `completed`: the backend replaces its list, the browser merges by id."""
    told: list[dict[str, Any]] = json.loads(json.dumps(update["response"]["output"]))
    assert [one["id"] for one in told[: len(items)]] == [one["id"] for one in items], "nothing may be lost or moved"
    return told


def streamed_content(updates: list[dict[str, Any]]) -> str:
    """The one text of the message: items joined as `get_output_text` does, chunks appended."""
    items = reduce(updates)
    if items:
        return "\n".join(item["content"][0]["text"] for item in items)
    return "".join(update["choices"][0]["delta"]["content"] for update in updates if "choices" in update)
