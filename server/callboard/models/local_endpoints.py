"""The search for a model that runs on this machine: programs that serve one listen on ports of their own."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

LOOK_SECONDS = 1.0
MOST_BYTES = 256 * 1024
OURS = "callboard"
"""The word that a Callboard server says of its agents in `owned_by`: an agent is no model for agents."""


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """A program that serves models, and the port that it listens on unless it is told otherwise."""

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
"""The programs that are asked; the first that has a model is taken."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that was found. The program is a guess by the port."""

    endpoint: LocalEndpoint
    name: str


async def find_local_model(
    endpoints: Sequence[LocalEndpoint] = LOCAL_ENDPOINTS, wanted: str | None = None
) -> LocalModel | None:
    """Return a model of the first endpoint that lists one; `wanted` is the only one that will do.

    Asks all of them at once and this machine alone, for a second in all. What does not list
    models as OpenAI does, or is a Callboard server, is no endpoint; a model for embeddings is none.
    """
    # Plain HTTP needs no certificates, which take 30 ms to load.
    plain = httpx.AsyncClient(trust_env=False, verify=False, timeout=LOOK_SECONDS)  # noqa: S501 - of plain HTTP alone
    async with plain as client:
        listed = await asyncio.gather(*(_list_models(client, endpoint.base_url) for endpoint in endpoints))
    for endpoint, names in zip(endpoints, listed, strict=True):
        for name in names:
            if wanted is None or name in (wanted, f"{wanted}:latest"):
                return LocalModel(endpoint, name)
    return None


async def _list_models(client: httpx.AsyncClient, base_url: str) -> list[str]:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            async with client.stream("GET", f"{base_url}/models") as response:
                if response.status_code != httpx.codes.OK:
                    return []
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        return []
        return _read_names(json.loads(body))
    except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
        return []


def _read_names(answer: object) -> list[str]:
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        return []
    models = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    if any(model.get("owned_by") == OURS for model in models):
        return []
    return [model["id"] for model in models if model["id"] and "embed" not in model["id"].lower()]
