"""A Home Assistant over real HTTP and WebSocket: states, registries, services, its handshake, its errors.

    async with HomeAssistantServer() as home:
        skill = HomeAssistant(home.url, TOKEN)

The house is a recorded one (version 2025.4.4 with its demo devices). Every service call that is
carried out is in `called`, and every intent for each thing that it changed. What it can do wrong:
`status` answers every request with an error, `rest_status` those over REST, `refusals` fail
services, `late` services are answered with the next command alone, `garbled` speaks another
language. Tokens that were offered are in `offered`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.fakes.http_server import HttpServer

Body = dict[str, Any]

TOKEN = "a-long-lived-access-token"
RECORDED = Path(__file__).parent.parent / "fixtures" / "home_assistant.json"

# By service: the state that it leads to; the attributes that it sets are its data's.
STATES = {
    "turn_on": "on",
    "turn_off": "off",
    "open_cover": "opening",
    "close_cover": "closing",
    "open_valve": "open",
    "close_valve": "closed",
    "lock": "locked",
    "unlock": "unlocked",
    "media_play": "playing",
    "media_pause": "paused",
    "start": "cleaning",
    "set_percentage": "on",
}
ATTRIBUTES = {
    "brightness_pct": "brightness",
    "position": "current_position",
}
KEPT = {"rgb_color", "color_temp_kelvin", "temperature", "percentage", "volume_level", "is_volume_muted"}
SETS_STATE = {"hvac_mode", "option", "value"}
SERVICES = {*STATES, "toggle", "stop_cover", "set_cover_position", "set_valve_position", "set_hvac_mode", "press"} | {
    "set_temperature", "set_percentage", "volume_set", "volume_mute", "select_option", "select_source", "set_value"
}  # fmt: skip
NOW = "2026-11-22T01:57:46.894158+00:00"
"""The state of a scene and of a button: when it was last used."""


WHERE: Body = {
    "name": {"type": "string"},
    "area": {"type": "string"},
    "floor": {"type": "string"},
    "domain": {"type": "array", "items": {"type": "string"}},
}


def _intent(intent: str, description: str, /, **properties: Any) -> Body:
    return {"name": intent, "description": description, "inputSchema": {"type": "object", "properties": properties}}


INTENTS = [
    _intent("HassTurnOn", "Turns on/opens a device or entity", **WHERE),
    _intent("HassTurnOff", "Turns off/closes a device or entity", **WHERE),
    _intent(
        "HassLightSet",
        "Sets the brightness percentage or color of a light",
        **WHERE,
        color={"type": "string"},
        temperature={"type": "integer", "minimum": 0},
        brightness={"type": "integer", "minimum": 0, "maximum": 100},
    ),
    _intent("GetLiveContext", "Provides real-time information about the CURRENT state of devices and areas."),
]
"""As Home Assistant lists them: none is marked as reading or as required."""


def fault(code: str, message: str) -> Body:
    """Why a command failed, in Home Assistant's own shape."""
    return {"code": code, "message": message}


def _told(text: str) -> Body:
    return {"content": [{"type": "text", "text": text}], "isError": False}


class HomeAssistantServer:
    """The server; use it as an asynchronous context manager."""

    def __init__(self) -> None:
        recorded = json.loads(RECORDED.read_text("utf-8"))
        self.url = ""
        self.version: str = recorded["ha_version"]
        self.states: dict[str, Body] = {state["entity_id"]: state for state in recorded["states"]}
        self.areas: list[Body] = recorded["areas"]
        self.floors: list[Body] = []
        self.devices: list[Body] = recorded["devices"]
        self.entries: dict[str, Body | None] = recorded["entries"]
        self.called: list[tuple[str, str, Body]] = []
        self.headers: list[Mapping[str, str]] = []
        self.status = 0
        self.rest_status = 0
        self.location = ""
        self.refusals: dict[str, Body] = {}
        self.late: set[str] = set()
        self.offered: list[Body] = []
        self._owed: list[int] = []
        self.garbled = False

    async def __aenter__(self) -> Self:
        self._server = await HttpServer(self._app(), ws="websockets-sansio").__aenter__()
        self.url = f"http://127.0.0.1:{self._server.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    def change(self, entity_id: str, state: str | None = None, **attributes: Any) -> None:
        """Gives an entity another state, and attributes beside those it has."""
        old = self.states[entity_id]
        changed = {**old, "attributes": {**old["attributes"], **attributes}}
        self.states[entity_id] = changed if state is None else {**changed, "state": state}

    def add(self, entity_id: str, name: str, state: str = "off", area_id: str | None = None, **attributes: Any) -> None:
        """One more entity, in the registry."""
        self.states[entity_id] = {
            "entity_id": entity_id,
            "state": state,
            "attributes": {"friendly_name": name, **attributes},
            "last_changed": "2026-11-22T01:43:32+00:00",
        }
        self.entries[entity_id] = {"entity_id": entity_id, "area_id": area_id, "device_id": None, "aliases": []}

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/states", self._all_states),
                Route("/api/states/{entity_id}", self._one_state),
                Route("/api/mcp", self._mcp, methods=["POST"]),
                WebSocketRoute("/api/websocket", self._websocket),
            ]
        )

    def _gate(self, authorization: str | None) -> Response | None:
        if self.location:
            return RedirectResponse(self.location, 302)
        if self.status:
            return PlainTextResponse(f"{self.status}: refused", self.status)
        if authorization is not None and self.rest_status:
            return PlainTextResponse(f"{self.rest_status}: refused", self.rest_status)
        if authorization not in (None, f"Bearer {TOKEN}"):
            return PlainTextResponse("401: Unauthorized", 401)
        return None

    async def _all_states(self, request: Request) -> Response:
        self.headers.append(request.headers)
        if (refused := self._gate(request.headers.get("authorization", ""))) is not None:
            return refused
        return JSONResponse(list(self.states.values()))

    async def _one_state(self, request: Request) -> Response:
        self.headers.append(request.headers)
        if (refused := self._gate(request.headers.get("authorization", ""))) is not None:
            return refused
        state = self.states.get(request.path_params["entity_id"])
        return JSONResponse(state) if state else JSONResponse({"message": "Entity not found."}, 404)

    async def _mcp(self, request: Request) -> Response:
        """The MCP server: stateless, one JSON answer to each request."""
        self.headers.append(request.headers)
        if (refused := self._gate(request.headers.get("authorization", ""))) is not None:
            return refused
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        answer: Body = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "initialize":
                info = {"name": "home-assistant", "version": "1.14.1"}
                answer["result"] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"experimental": {}, "tools": {"listChanged": False}},
                    "serverInfo": info,
                }
            case "tools/list":
                answer["result"] = {"tools": INTENTS}
            case "tools/call":
                answer["result"] = self._handle(message["params"]["name"], message["params"].get("arguments", {}))
            case _:
                answer["error"] = {"code": -32602, "message": "Invalid request parameters", "data": ""}
        return JSONResponse(answer)

    def _handle(self, intent: str, arguments: Body) -> Body:
        if intent == "GetLiveContext":
            return _told(json.dumps({"success": True, "result": "Live Context: all is quiet."}))
        limits = {"domain": ["light"]} if intent == "HassLightSet" else {}
        found = [entity_id for entity_id in self.states if self._is_meant(entity_id, limits | arguments)]
        if not found:
            said = "Error calling tool: <MatchFailedError result=MatchTargetsResult(is_match=False)>"
            return {**_told(said), "isError": True}
        for entity_id in found:
            self.change(entity_id, "off" if intent == "HassTurnOff" else "on")
            self.called.append((intent, entity_id, arguments))
        success = [{"name": self._name(entity_id), "type": "entity", "id": entity_id} for entity_id in found]
        if area := arguments.get("area"):
            success.insert(0, {"name": area, "type": "area", "id": area.lower()})
        data = {"targets": [], "success": success, "failed": []}
        return _told(json.dumps({"speech": {}, "response_type": "action_done", "data": data}))

    def _is_meant(self, entity_id: str, arguments: Body) -> bool:
        entry = self.entries.get(entity_id) or {}
        device = next((one for one in self.devices if one["id"] == entry.get("device_id")), {})
        area_id = entry.get("area_id") or device.get("area_id")
        area = next((one for one in self.areas if one["area_id"] == area_id), {})
        floor = next((one for one in self.floors if one["floor_id"] == area.get("floor_id")), {})
        if not (entry.get("options") or {}).get("conversation", {}).get("should_expose", True):
            return False
        domain = entity_id.partition(".")[0]
        asked = {"name": self._name(entity_id), "area": area.get("name"), "floor": floor.get("name")}
        return domain in arguments.get("domain", [domain]) and all(
            arguments[key].lower() == str(value).lower() for key, value in asked.items() if key in arguments
        )

    def _name(self, entity_id: str) -> str:
        return str(self.states[entity_id]["attributes"].get("friendly_name"))

    async def _websocket(self, websocket: WebSocket) -> None:
        self.headers.append(websocket.headers)
        if (refused := self._gate(None)) is not None:
            await websocket.send_denial_response(refused)
            return
        await websocket.accept()
        if self.garbled:
            await websocket.send_json({"op": 10, "d": {"heartbeat_interval": 41250}})
            await websocket.close()
            return
        await websocket.send_json({"type": "auth_required", "ha_version": self.version})
        offered = await websocket.receive_json()
        self.offered.append(offered)
        if offered != {"type": "auth", "access_token": TOKEN}:
            await websocket.send_json({"type": "auth_invalid", "message": "Invalid access token or password"})
            await websocket.close()
            return
        await websocket.send_json({"type": "auth_ok", "ha_version": self.version})
        try:
            while True:
                await self._command(websocket, await websocket.receive_json())
        except WebSocketDisconnect:
            return

    async def _command(self, websocket: WebSocket, message: Body) -> None:
        match message:
            case {"type": "config/area_registry/list"}:
                result: Any = self.areas
            case {"type": "config/floor_registry/list"}:
                result = self.floors
            case {"type": "config/device_registry/list"}:
                result = self.devices
            case {"type": "config/entity_registry/get_entries", "entity_ids": entity_ids}:
                result = {entity_id: self.entries.get(entity_id) for entity_id in entity_ids}
            case {"type": "call_service", "domain": domain, "service": service, "target": {"entity_id": entity_id}}:
                if f"{domain}.{service}" in self.late:
                    self._owed.append(message["id"])
                    return
                error = self._serve(domain, service, entity_id, message.get("service_data", {}))
                if error:
                    await websocket.send_json({"id": message["id"], "type": "result", "success": False, "error": error})
                    return
                result = {"context": {"id": "01M80EV3Q3H8P34YAPGF4AZQJE", "parent_id": None, "user_id": "5c5b"}}
            case _:
                error = fault("unknown_command", "Unknown command.")
                await websocket.send_json({"id": message["id"], "type": "result", "success": False, "error": error})
                return
        for number in (*self._owed, message["id"]):
            await websocket.send_json({"id": number, "type": "result", "success": True, "result": result})
        self._owed.clear()

    def _serve(self, domain: str, service: str, entity_id: str, data: Mapping[str, Any]) -> Body | None:
        name = f"{domain}.{service}"
        if name in self.refusals:
            return self.refusals[name]
        if service not in SERVICES or not entity_id.startswith(f"{domain}."):
            return fault("not_found", f"Service {name} not found.")
        state = self.states.get(entity_id)
        if state is None or state["state"] == "unavailable":
            return None  # as Home Assistant: it warns in its log, and says that all is well
        self.called.append((name, entity_id, dict(data)))
        attributes = {ATTRIBUTES.get(key, key): value for key, value in data.items() if key in {*ATTRIBUTES, *KEPT}}
        if "brightness" in attributes:
            attributes["brightness"] = round(attributes["brightness"] * 2.55)
        to = next((str(value) for key, value in data.items() if key in SETS_STATE), STATES.get(service))
        if service == "toggle":
            to = "off" if state["state"] == "on" else "on"
        if domain in ("scene", "button"):
            to = NOW
        if to == "off":
            attributes |= dict.fromkeys(("brightness", "rgb_color", "color_temp_kelvin"))
        self.change(entity_id, to, **attributes)
        return None
