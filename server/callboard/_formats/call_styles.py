"""How each model has called tools so far: natively, or in its text, and in which syntax.

The endpoint of a model that calls natively parses its calls, so a call in that model's text is only quoted or
explained. A model that has written a call as text, in the syntax that its chat template or its name identifies, has no
other way to call. Its endpoint is asked for the template after the first such call, so models that call natively never
wait for that request.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from callboard.models import DescribedModel, ModelDescription
from callboard_formats.detection import FoundFormat, find_format, prompt_opens_thought
from callboard_formats.formats import is_written_by

_log = structlog.get_logger(__name__)

RETRY_SECONDS = 600.0
"""The time until an endpoint that gave no description is asked again: it may have been busy, or been replaced."""

NO_EVIDENCE = "neither its chat template nor its name tells one"


@dataclass(frozen=True, slots=True)
class ModelKey:
    """A model's name and the address of its endpoint: two endpoints may serve different models of one name."""

    name: str = ""
    endpoint: str = ""


class ModelDescriptions:
    """The descriptions that endpoints give of their models, requested once per model and process.

    A request takes a moment; only `wait` waits for it.
    """

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


class CallStyles:
    """Remembers, as long as the process lives, which models call natively and which write calls in their text.

    The syntax found for a model is logged, and again when it changes.
    """

    def __init__(self, descriptions: ModelDescriptions | None = None) -> None:
        self.descriptions = descriptions or ModelDescriptions()
        self._native: set[ModelKey] = set()
        self._written: dict[ModelKey, set[str]] = {}
        self._own: dict[ModelKey, str] = {}
        self._logged: dict[ModelKey, tuple[str, str]] = {}

    def calls_natively(self, model: ModelKey) -> bool:
        """Return whether this model has called natively."""
        return model in self._native

    def note_native_call(self, model: ModelKey) -> None:
        """Remember that this model has called natively."""
        self._native.add(model)
        self._own.pop(model, None)

    def note_text_call(self, model: ModelKey, syntax: str, described: DescribedModel | None = None) -> None:
        """Remember that this model has written a call as text. `described` is asked once for its description."""
        if model in self._native:
            return
        written = self._written.setdefault(model, set())
        is_new = syntax not in written
        written.add(syntax)
        is_requested = described is not None and self.descriptions.request(model, described, self._decide)
        if is_new and not is_requested:
            self._decide(model)

    def own_syntax(self, model: ModelKey) -> str | None:
        """Return the syntax of a model that writes its calls; None if it is unknown or the model calls natively."""
        return self._own.get(model)

    def request_description(self, model: ModelKey, described: DescribedModel) -> None:
        """Request the description of a model whose syntax is known, because it shows if the prompt opens a thought."""
        if model not in self._native:
            # The next answer looks the description up.
            self.descriptions.request(model, described, lambda _: None)

    def prompt_opens(self, model: ModelKey, syntax: str) -> bool | None:
        """Return whether the prompt of a model of this syntax opens a thought; None without a description."""
        description = self.descriptions.get(model)
        return prompt_opens_thought(syntax, description.template, description.prompt)

    def _decide(self, model: ModelKey) -> None:
        """Decide which syntax is the model's own: the one that the evidence names, if the model has written it."""
        if model in self._native:
            return
        written = self._written[model]
        found = _find_model_format(model.name, self.descriptions.get(model))
        if found is None:
            self._log_once(model, "auto", NO_EVIDENCE)
        elif any(is_written_by(syntax, found.name) for syntax in written):
            self._own[model] = found.name
            self._log_once(model, found.name, found.because)
        else:
            self._own.pop(model, None)
            wrote = ", ".join(sorted(written))
            self._log_once(model, "auto", f"{found.because} says {found.name}, and it wrote {wrote}")

    def _log_once(self, model: ModelKey, syntax: str, because: str) -> None:
        if self._logged.get(model) != (syntax, because):
            self._logged[model] = syntax, because
            _log.info("format_found", model=model.name, endpoint=model.endpoint, format=syntax, because=because)


def _find_model_format(model: str, description: ModelDescription) -> FoundFormat | None:
    """Return the syntax of a model by its endpoint's description or by its name; None if neither identifies one."""
    found = find_format(model, description.template, description.other_names, description.prompt)
    if found is not None and found.is_from_template and description.program:
        return replace(found, because=f"{found.because} ({description.program})")
    return found
