"""Asks a Callboard server for its health, with `GET /health`."""

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError


class Health(BaseModel):
    """The response of `GET /health`."""

    model_config = ConfigDict(frozen=True)

    version: str
    protocol: int
    status: str
    reason: str = ""


async def ask_health(url: str, timeout_seconds: float) -> Health | None:
    """Return the health of the Callboard server at `url`; None if no such server answers there."""
    try:
        # The proxy in the environment is for other machines.
        async with httpx.AsyncClient(trust_env=False, timeout=timeout_seconds) as http:
            answer = await http.get(f"{url}/health")
        return Health.model_validate_json(answer.content)
    except (httpx.HTTPError, ValidationError):
        return None
