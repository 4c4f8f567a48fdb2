"""An MCP server of the older protocol, written by hand so that it can say anything: `plain_server.py script.json`.

The script has `pages` (the tools of each page of the list), `results` (by tool name, what is answered; `raw` by tool
name, the JSON text that is answered in its place), `resources` (the contents of each URI), `listed` (the list of
resources), `cursor` (that of every page, so that the list never ends), `asks`
(a request that it makes of its client in every call, whose reply is its result), `times` (how often it makes this
request, one after the other; the replies are lines), `refusal` (the message of the error with which it refuses each
list), and words for what else it does: `deaf` (ends for nothing but SIGKILL), `mute` (never answers), `noisy` (writes
to standard output what is no message), `restless` (reports a change after each list), `together` (how many calls it
waits for before one answer answers them all), `busy` (reports a change at a call, refuses the list that is read then
with this message, and answers the call after the list that is read next), `strict` (ends if its first message is not
`initialize`, as Rust's rmcp 1 does).
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

script = json.loads(Path(sys.argv[1]).read_text())


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer_about_resources(method: str, uri: str | None) -> dict[str, Any]:
    if method == "resources/read" and uri not in script["resources"]:
        return {"error": {"code": -32002, "message": f"there is no {uri}"}}
    return {
        "result": {
            "resources/list": {"resources": script.get("listed", [])},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": {"contents": script["resources"].get(uri)},
        }[method]
    }


def answer(request: dict[str, Any]) -> dict[str, Any]:
    parameters = request.get("params", {})
    match request["method"]:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            capabilities |= {"resources": {}} if "resources" in script else {}
            info = {"name": "plain", "version": "1"}
            return {"result": {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}}
        case "tools/list" if "refusal" in script:
            return {"error": {"code": -32603, "message": script["refusal"]}}
        case "tools/list":
            page = 0 if "cursor" in script else int(parameters.get("cursor") or 0)
            more = {"nextCursor": str(page + 1)} if page + 1 < len(script["pages"]) else {}
            if "cursor" in script:
                more = {"nextCursor": script["cursor"]}
            return {"result": {"tools": script["pages"][page], **more}}
        case method if method.startswith("resources/"):
            return answer_about_resources(method, parameters.get("uri"))
        case "tools/call" if "asks" in script:
            replies = []
            for _ in range(script.get("times", 1)):
                send({"id": "question", **script["asks"]})
                replies.append(sys.stdin.readline())
            return {"result": {"content": [{"type": "text", "text": "".join(replies)}]}}
        case "tools/call":
            return {"result": script["results"][parameters["name"]]}
        case _:
            return {"error": {"code": -32601, "message": "there is no such method"}}


if "deaf" in script:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "noisy" in script:
    print("Welcome! This is no message.", flush=True)
lists = 0
held: list[dict[str, Any]] = []
for line in sys.stdin:
    request = json.loads(line)
    lists += request["method"] == "tools/list"
    if script.pop("strict", False) and request["method"] != "initialize":
        sys.exit(1)
    called = request.get("params", {}).get("name")
    if called in script.get("raw", {}):
        print(script["raw"][called].replace("ID", str(request["id"])), flush=True)
    elif "together" in script and request["method"] == "tools/call":
        held.append(request)
        if len(held) == script["together"]:
            together = answer(request)
            for each in held:
                send({"id": each["id"], **together})
            held.clear()
    elif "busy" in script and request["method"] == "tools/call":
        held.append(request)
        send({"method": "notifications/tools/list_changed"})
    elif "busy" in script and request["method"] == "tools/list" and lists == 2:
        send({"id": request["id"], "error": {"code": -32603, "message": script["busy"]}})
    elif "id" in request and "mute" not in script:
        send({"id": request["id"], **answer(request)})
        if "restless" in script and request["method"] == "tools/list":
            send({"method": "notifications/tools/list_changed"})
        while held and lists == 3:
            send({"id": held[-1]["id"], **answer(held.pop())})
while "deaf" in script:
    signal.pause()
