"""Checks of the model's endpoint."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from callboard._cli.doctor.settings import Context
from callboard._formats import FormatChoice, find_model_format
from callboard.errors import ModelError, ModelRefused
from callboard.models import ModelRequest, OpenAICompatible, ToolCallDelta, find_local_model

NAMES_SHOWN = 8

WEATHER = {
    "name": "get_weather",
    "description": "Looks up the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
PROBE = ModelRequest(
    messages=[{"role": "user", "content": "Use the tool to look up the weather in Paris."}],
    tools=[{"type": "function", "function": WEATHER}],
)
"""Offers a tool without forcing a call, because the check is whether the model calls the tool by itself."""


async def check_model(context: Context) -> AsyncIterator[str]:
    """Ask the endpoint for its models, and then ask the model for one tool call."""
    settings = context.settings
    base_url, name, secret = settings.model_base_url, settings.model, settings.model_api_key
    if not base_url:
        found = await find_local_model(context.endpoints, name) if settings.find_model else None
        if found is None:
            yield "– model: none is set; the demo needs none → set CALLBOARD_MODEL_BASE_URL and CALLBOARD_MODEL"
            return
        base_url, name, secret = found.endpoint.base_url, found.name, None
        yield (
            f"– model: none is set; {found.endpoint.program} on this machine serves {name} "
            "→ callboard serve uses it; choose another with CALLBOARD_MODEL_BASE_URL"
        )
    key = secret.get_secret_value() if secret else None
    timeout = context.options.timeout
    endpoint = OpenAICompatible(base_url, api_key=key, model=name, timeout_seconds=timeout, max_retries=0)
    async with aclosing(endpoint) as model:
        yield await _check_list(model)
        has_called = await asyncio.wait_for(_call_tool(model), timeout)
        tool_format = FormatChoice(settings.tool_format, settings.react_models).for_name(model.name).name
        if has_called:
            yield "✓ model: the key is accepted; calls a tool natively: yes"
        elif tool_format not in ("auto", "native"):
            yield f"✓ model: the key is accepted; calls a tool natively: no, but {tool_format} needs no native calls"
        else:
            yield (
                "✗ model: calls a tool natively: no, in one probe "
                f"→ set CALLBOARD_TOOL_FORMAT=react, or CALLBOARD_REACT_MODELS={model.name}"
            )
            if tool_format == "auto":
                yield await _describe_syntax(model)


async def _check_list(model: OpenAICompatible) -> str:
    """Return a line about the endpoint's list of models. Raises `ModelError` if the list lacks the model."""
    try:
        names = await model.list_names()
    except ModelError as error:
        if model.name and _is_refusal(error):
            return f"– model: the endpoint does not list its models: {error}"
        raise
    if model.name and not names:
        return "– model: the endpoint lists no model"
    name = await model.find_name()
    if name not in names and f"{name}:latest" not in names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        raise ModelError(f"the endpoint does not serve {name} → set CALLBOARD_MODEL to one of these: {shown}")
    return f"✓ model: the endpoint answers and serves {name}"


def _is_refusal(error: ModelError) -> bool:
    """Return whether the endpoint refused only this request, so that another request may succeed."""
    return type(error) in (ModelError, ModelRefused)


async def _call_tool(model: OpenAICompatible) -> bool:
    """Send `PROBE`, and return whether the model calls its tool natively."""
    try:
        async with aclosing(model.stream(PROBE)) as deltas:  # type: ignore[type-var] # a generator, declared as an iterator
            async for delta in deltas:
                if isinstance(delta, ToolCallDelta):
                    return True
    except ModelError as error:
        # Each server has another message for this, for example "… does not support tools".
        if not _is_refusal(error) or "tool" not in str(error).lower():
            raise
    return False


async def _describe_syntax(model: OpenAICompatible) -> str:
    """Return a line about the syntax in which the format `auto` reads calls in the model's text."""
    found = find_model_format(model.name, await model.describe())
    if found is not None:
        return f"✓ model: auto reads calls in its text as {found.name}: {found.because} says so"
    return (
        "– model: neither its chat template nor its name shows how it writes calls; auto reads only a call at the end "
        "of an answer → set CALLBOARD_TOOL_FORMAT to the model's family if you know it"
    )
