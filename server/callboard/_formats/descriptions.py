"""What endpoints have told of their models, as far as this process has asked: each once.

Asking takes a moment; only `settle` waits for it. Above: native callers. Below: models.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from callboard.models import ChatModel, DescribedModel, ModelDescription

SILENCE_SECONDS = 600.0
"""The time after which an endpoint is asked again that told nothing: it may have been busy, or is another one now."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ModelKey:
    """A model: its name, and the address of its endpoint; two endpoints may have different models of one name."""

    name: str = ""
    endpoint: str = ""


def model_key(model: ChatModel, name: str) -> ModelKey:
    """Return the key of a model that is asked for by `name`."""
    return ModelKey(name, model.address if isinstance(model, DescribedModel) else "")


class ModelDescriptions:
    """The descriptions of models by their keys; for as long as the process runs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[ModelKey, ModelDescription] = {}
        self._silent_until: dict[ModelKey, float] = {}
        self._asking: dict[ModelKey, asyncio.Task[None]] = {}

    def of(self, key: ModelKey) -> ModelDescription:
        """Return what is known of a model; an empty description where that is nothing."""
        return self._told.get(key, ModelDescription())

    def ask(self, key: ModelKey, model: DescribedModel, then: Callable[[ModelKey], None]) -> bool:
        """Ask the endpoint unless it has answered, or was silent of late; return whether it is being asked.

        `then` is called afterwards, but for a question that was under way before.
        """
        if key in self._asking:
            return True
        if key in self._told or self._clock() < self._silent_until.get(key, 0.0):
            return False
        self._asking[key] = asyncio.create_task(self._ask(key, model, then), name=f"describe {key.name}")
        return True

    async def settle(self, key: ModelKey) -> None:
        """Wait for a question that is under way; cancelling one who waits does not cancel the question."""
        if (asking := self._asking.get(key)) is not None:
            await asyncio.wait({asking})

    async def aclose(self) -> None:
        """Give up what is under way."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, key: ModelKey, model: DescribedModel, then: Callable[[ModelKey], None]) -> None:
        try:
            description = await model.describe()
        except Exception as error:  # noqa: BLE001 - foreign code: a model of one's own may raise anything
            _log.warning("model_not_described", model=key.name, endpoint=key.endpoint, exc_info=error)
            description = ModelDescription()
        finally:
            del self._asking[key]
        if description == ModelDescription():
            self._silent_until[key] = self._clock() + SILENCE_SECONDS
        else:
            self._told[key] = description
        then(key)
