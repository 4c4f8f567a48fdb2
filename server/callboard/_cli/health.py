"""Whether a server of ours answers at an address, and how it is."""

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError


class Health(BaseModel):
    """What `GET /health` says."""

    model_config = ConfigDict(frozen=True)

    version: str
    protocol: int
    status: str
    reason: str = ""


async def ask_health(url: str, timeout_seconds: float) -> Health | None:
    """Return how the server of ours at `url` is; None where none answers there."""
    try:
        # A proxy of the environment is for other machines.
        async with httpx.AsyncClient(trust_env=False, timeout=timeout_seconds) as http:
            answer = await http.get(f"{url}/health")
        return Health.model_validate_json(answer.content)
    except (httpx.HTTPError, ValidationError):
        return None
