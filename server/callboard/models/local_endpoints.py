"""Finds a model on this machine: the known programs listen on their own default ports."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from callboard.models.endpoint_stream import read_models, read_within

SEARCH_TIMEOUT_SECONDS = 1.0
MAX_BYTES = 256 * 1024
CALLBOARD_OWNER = "callboard"
"""The `owned_by` of Callboard's own agents. An agent must not be used as another agent's model."""


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """A program that serves models, and its default port."""

    program: str
    port: int

    @property
    def base_url(self) -> str:
        """The address of its API on this machine."""
        return f"http://127.0.0.1:{self.port}/v1"


LOCAL_ENDPOINTS = (
    LocalEndpoint("Ollama", 11434),
    LocalEndpoint("LM Studio", 1234),
    LocalEndpoint("vLLM", 8000),
    LocalEndpoint("llama.cpp", 8080),
)
"""The programs that are searched, in order of preference."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that was found. The program is guessed from the port."""

    endpoint: LocalEndpoint
    name: str


async def find_local_model(
    endpoints: Sequence[LocalEndpoint] = LOCAL_ENDPOINTS, required_name: str | None = None
) -> LocalModel | None:
    """Return the model `required_name`, or any model, of the first endpoint that lists it; None if there is none.

    All endpoints of this machine are asked at once, for one second in total. Programs that do not list models as
    OpenAI does, Callboard servers and embedding models are ignored.
    """
    # Certificates take 30 ms to load, and plain HTTP needs none.
    plain_client = httpx.AsyncClient(trust_env=False, verify=False, timeout=SEARCH_TIMEOUT_SECONDS)  # noqa: S501 - for plain HTTP only
    async with plain_client as client:
        listed = await asyncio.gather(*(_list_models(client, endpoint.base_url) for endpoint in endpoints))
    for endpoint, names in zip(endpoints, listed, strict=True):
        for name in names:
            if required_name is None or name in (required_name, f"{required_name}:latest"):
                return LocalModel(endpoint, name)
    return None


async def _list_models(client: httpx.AsyncClient, base_url: str) -> list[str]:
    try:
        async with asyncio.timeout(SEARCH_TIMEOUT_SECONDS), client.stream("GET", f"{base_url}/models") as response:
            if response.status_code != httpx.codes.OK:
                return []
            body = await read_within(MAX_BYTES, response.aiter_bytes())
        models = read_models(json.loads(body)) if body else []
    except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
        return []
    if any(model.get("owned_by") == CALLBOARD_OWNER for model in models):
        return []
    return [model["id"] for model in models if "embed" not in model["id"].lower()]
