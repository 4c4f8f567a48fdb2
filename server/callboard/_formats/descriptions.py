"""The descriptions that endpoints give of their models, requested once per model and process.

A request takes a moment; only `wait` waits for it.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from callboard.models import ChatModel, DescribedModel, ModelDescription

RETRY_SECONDS = 600.0
"""The time until an endpoint that gave no description is asked again: it may have been busy, or been replaced."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ModelKey:
    """A model's name and the address of its endpoint: two endpoints may serve different models of one name."""

    name: str = ""
    endpoint: str = ""


def model_key(model: ChatModel, name: str) -> ModelKey:
    """Return the key of the model that requests call `name`."""
    return ModelKey(name, model.address if isinstance(model, DescribedModel) else "")


class ModelDescriptions:
    """A cache of model descriptions that lives as long as the process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[ModelKey, ModelDescription] = {}
        self._retry_at: dict[ModelKey, float] = {}
        self._requests: dict[ModelKey, asyncio.Task[None]] = {}

    def get(self, key: ModelKey) -> ModelDescription:
        """Return the description of a model; an empty one if none is known."""
        return self._known.get(key, ModelDescription())

    def request(self, key: ModelKey, model: DescribedModel, then: Callable[[ModelKey], None]) -> bool:
        """Request the description in the background; return whether a request is running now.

        No request is made for a known model, or within `RETRY_SECONDS` of an empty answer. `then` is called at the end
        of a request that this call has started.
        """
        if key in self._requests:
            return True
        if key in self._known or self._clock() < self._retry_at.get(key, 0.0):
            return False
        self._requests[key] = asyncio.create_task(self._request(key, model, then), name=f"describe {key.name}")
        return True

    async def wait(self, key: ModelKey) -> None:
        """Wait for a running request. Cancelling the waiter does not cancel the request."""
        if (request := self._requests.get(key)) is not None:
            await asyncio.wait({request})

    async def aclose(self) -> None:
        """Cancel all running requests."""
        requests = list(self._requests.values())
        for task in requests:
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def _request(self, key: ModelKey, model: DescribedModel, then: Callable[[ModelKey], None]) -> None:
        try:
            description = await model.describe()
        except Exception as error:  # noqa: BLE001 - foreign code: an application's own model may raise anything
            _log.warning("model_not_described", model=key.name, endpoint=key.endpoint, exc_info=error)
            description = ModelDescription()
        finally:
            del self._requests[key]
        if description == ModelDescription():
            self._retry_at[key] = self._clock() + RETRY_SECONDS
        else:
            self._known[key] = description
        then(key)
