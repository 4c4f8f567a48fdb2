"""Check of the model's endpoint: reachable, key accepted, model there, and whether it calls a tool natively."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import urlsplit

from callboard._cli.doctor.findings import Context, Finding, broken, unset, well
from callboard._formats import choose_format, find_model_format
from callboard._settings import Settings
from callboard.errors import ModelError, ModelRateLimited, ModelTimeout, ModelUnauthorized, ModelUnreachable
from callboard.models import ModelRequest, OpenAICompatible, ToolCallDelta, find_local_model

SUBJECT = "model"
MOST_NAMES = 8

PROBE = ModelRequest(
    messages=[{"role": "user", "content": "Use the tool to look up the weather in Paris."}],
    tools=[
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Looks up the weather of a city.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string", "description": "The city's name."}},
                    "required": ["city"],
                },
            },
        }
    ],
)


async def check_model(context: Context) -> AsyncIterator[Finding]:
    """Ask the endpoint for its models, and the model for one call of a tool."""
    settings = context.settings
    key = settings.model_api_key.get_secret_value() if settings.model_api_key else None
    base_url = settings.model_base_url
    name = settings.model
    if not base_url:
        found = await find_local_model(context.endpoints, name) if settings.find_model else None
        if found is None:
            yield unset(SUBJECT, "none is set; the demo needs none", "set CALLBOARD_MODEL_BASE_URL and CALLBOARD_MODEL")
            return
        base_url = found.endpoint.base_url
        name = found.name
        key = None
        text = f"none is set; {found.endpoint.program} on this machine serves {name}"
        yield unset(SUBJECT, text, "callboard serve uses it; choose another with CALLBOARD_MODEL_BASE_URL")
    elif not _is_address(base_url):
        yield broken(SUBJECT, "CALLBOARD_MODEL_BASE_URL is no address", "write it as http://localhost:11434/v1")
        return
    model = OpenAICompatible(base_url, api_key=key, model=name, timeout_seconds=context.timeout_seconds, max_retries=0)
    try:
        listed, reachable = await _list(model)
        yield listed
        if reachable:
            async for finding in _probe(model, settings, context.timeout_seconds):
                yield finding
    finally:
        await model.aclose()


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


async def _list(model: OpenAICompatible) -> tuple[Finding, bool]:
    """Return a finding about the list, and whether the endpoint is worth asking for more."""
    try:
        names = await model.list_names()
    except (ModelUnreachable, ModelTimeout, ModelUnauthorized, ModelRateLimited) as error:
        return broken(SUBJECT, error), False
    except ModelError as error:
        if model.name:
            return unset(SUBJECT, f"the endpoint does not list its models: {error}"), True
        return broken(SUBJECT, error), False
    if not names:
        return broken(SUBJECT, "the endpoint lists no model", "name one in CALLBOARD_MODEL"), bool(model.name)
    if model.name and model.name not in names and f"{model.name}:latest" not in names:
        shown = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
        return broken(SUBJECT, f"{model.name} is not there", f"set CALLBOARD_MODEL to one of these: {shown}"), False
    return well(SUBJECT, f"the endpoint answers and serves {model.name or names[0]}"), True


async def _probe(model: OpenAICompatible, settings: Settings, timeout_seconds: float) -> AsyncIterator[Finding]:
    """Offer one tool and force nothing: what counts is what the model does of itself."""
    try:
        async with asyncio.timeout(timeout_seconds):
            calls = await _calls_natively(model)
    except (ModelUnreachable, ModelTimeout, ModelUnauthorized, ModelRateLimited) as error:
        yield broken(SUBJECT, error)
        return
    except TimeoutError:
        yield broken(SUBJECT, "it did not end its answer in time", "try again with --timeout 120, or another model")
        return
    except ModelError as error:
        # Servers refuse tools in words of their own: "… does not support tools".
        if "tool" not in str(error).lower():
            yield broken(SUBJECT, error)
            return
        calls = False
    asked = choose_format(settings.tool_format, model.name, settings.react_models).name
    if calls:
        yield well(SUBJECT, "the key is accepted; calls a tool natively: yes")
    elif asked in ("auto", "native"):
        advice = f"set CALLBOARD_TOOL_FORMAT=react, or CALLBOARD_REACT_MODELS={model.name}"
        yield broken(SUBJECT, "calls a tool natively: no, in one probe", advice)
        if asked == "auto":
            yield await _tell_syntax(model)
    else:
        yield well(SUBJECT, f"the key is accepted; calls a tool natively: no, which {asked} does without")


async def _tell_syntax(model: OpenAICompatible) -> Finding:
    """Return a finding about the syntax in which `auto` would read calls in the model's text, and what says so."""
    found = find_model_format(model.name, await model.describe())
    if found is None:
        text = "neither its chat template nor its name tells how it writes calls; auto rescues one at an answer's end"
        return unset(SUBJECT, text, "set CALLBOARD_TOOL_FORMAT to the model's family where you know it")
    return well(SUBJECT, f"auto reads calls in its text as {found.name}: {found.because} says so")


async def _calls_natively(model: OpenAICompatible) -> bool:
    async with aclosing(model.stream(PROBE)) as deltas:  # type: ignore[type-var] # a generator, declared as an iterator
        async for delta in deltas:
            if isinstance(delta, ToolCallDelta):
                return True
    return False
