"""An endpoint for embeddings: OpenAI's `POST /embeddings` and compatible ones."""

import asyncio
import json
import math
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx

from callboard.errors import ModelError, ModelTimeout, ModelUnreachable
from callboard.models.endpoint_stream import read_within
from callboard.models.tls import tls_context
from callboard.redaction import secrets_in_url

EMBEDDING_TIMEOUT_SECONDS = 20.0
MAX_ANSWER_BYTES = 32 * 2**20
MAX_DIMENSIONS = 16_384
DETAIL_CHARS = 200


class EmbeddingEndpoint:
    """An embedding model behind `POST {base_url}/embeddings`. Error messages never contain the key.

    `timeout_seconds` limits a whole request, `MAX_ANSWER_BYTES` its answer.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        model: str,
        *,
        timeout_seconds: float = EMBEDDING_TIMEOUT_SECONDS,
    ) -> None:
        self.model = model
        self._timeout_seconds = timeout_seconds
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.secrets = ((api_key,) if api_key else ()) + tuple(secrets_in_url(base_url))

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of the texts, in order and of equal length. Raises `ModelError` and its subclasses."""
        body = {"model": self.model, "input": list(texts)}
        try:
            # Neither the environment's proxy nor redirects are used, because both would receive the key.
            async with (
                asyncio.timeout(self._timeout_seconds),
                httpx.AsyncClient(trust_env=False, verify=tls_context(), timeout=self._timeout_seconds) as client,
                client.stream("POST", self._url, json=body, headers=self._headers) as response,
            ):
                content = await read_within(MAX_ANSWER_BYTES, response.aiter_bytes())
        except (TimeoutError, httpx.TimeoutException) as error:
            raise ModelTimeout(f"The embedding endpoint did not answer within {self._timeout_seconds:g} s.") from error
        except httpx.HTTPError as error:
            raise ModelUnreachable(
                f"The embedding endpoint cannot be reached ({type(error).__name__}): check "
                "CALLBOARD_EMBEDDING_BASE_URL, or CALLBOARD_MODEL_BASE_URL if that is not set."
            ) from error
        except httpx.InvalidURL as error:
            raise ModelError("CALLBOARD_EMBEDDING_BASE_URL is not a valid address.") from error
        if content is None:
            raise ModelError(f"The embedding endpoint sent more than {MAX_ANSWER_BYTES:,} bytes.")
        status = response.status_code
        if status in (401, 403):
            raise ModelError(f"The embedding endpoint refused the key ({status}): check CALLBOARD_EMBEDDING_API_KEY.")
        if status != httpx.codes.OK:
            raise ModelError(
                f"The embedding endpoint answered {status}: check CALLBOARD_EMBEDDING_BASE_URL (often it ends in /v1) "
                f"and CALLBOARD_EMBEDDING_MODEL ({self.model[:DETAIL_CHARS]})."
            )
        # In a thread, because parsing megabytes of JSON would block the event loop.
        vectors = await asyncio.to_thread(_read, content, len(texts))
        if vectors is None:
            raise ModelError("The embedding endpoint did not send one vector for each text.")
        return vectors

    def __repr__(self) -> str:
        return f"EmbeddingEndpoint({urlsplit(self._url).hostname!r}, {self.model!r})"


def _read(content: bytearray, number: int) -> list[list[float]] | None:
    """Return the vectors by their `index`, or in order if they have none; None for an invalid answer."""
    try:
        entries = json.loads(content)["data"]
        placed = {entry.get("index", place): entry["embedding"] for place, entry in enumerate(entries)}
        vectors = [[float(value) for value in placed[place]] for place in range(number)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    lengths = {len(vector) for vector in vectors}
    sound = len(lengths) == 1 and 0 < lengths.pop() <= MAX_DIMENSIONS and len(entries) == number
    return vectors if sound and all(_has_direction(vector) for vector in vectors) else None


def _has_direction(vector: Sequence[float]) -> bool:
    # Squares of larger numbers would overflow. No model produces them.
    return all(math.isfinite(value) and abs(value) < 1e18 for value in vector) and any(
        abs(value) > 1e-18 for value in vector
    )
