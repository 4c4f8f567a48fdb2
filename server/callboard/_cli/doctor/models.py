"""Checks of the model's endpoint and of the embedding endpoint."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import urlsplit

from sqlalchemy import func, select

from callboard._cli.doctor.data import is_missing
from callboard._cli.doctor.settings import Context
from callboard._formats import choose_format, find_model_format
from callboard.errors import ModelError, ModelRefused, StorageError
from callboard.models import ModelRequest, OpenAICompatible, ToolCallDelta, find_local_model
from callboard.skills.memory import MemorySettings
from callboard.storage import Store
from callboard.storage.sql.tables import memory_vectors

NAMES_SHOWN = 8
FLOAT_BYTES = 4

WEATHER = {
    "name": "get_weather",
    "description": "Looks up the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The city's name."}},
        "required": ["city"],
    },
}
PROBE = ModelRequest(
    messages=[{"role": "user", "content": "Use the tool to look up the weather in Paris."}],
    tools=[{"type": "function", "function": WEATHER}],
)
"""Offers a tool and forces nothing: the check is whether the model calls it by itself."""


async def check_model(context: Context) -> AsyncIterator[str]:
    """Ask the endpoint for its models, and the model for one tool call."""
    settings = context.settings
    key = settings.model_api_key.get_secret_value() if settings.model_api_key else None
    base_url = settings.model_base_url
    name = settings.model
    if not base_url:
        found = await find_local_model(context.endpoints, name) if settings.find_model else None
        if found is None:
            yield "– model: none is set; the demo needs none → set CALLBOARD_MODEL_BASE_URL and CALLBOARD_MODEL"
            return
        base_url, name, key = found.endpoint.base_url, found.name, None
        yield (
            f"– model: none is set; {found.endpoint.program} on this machine serves {name} "
            "→ callboard serve uses it; choose another with CALLBOARD_MODEL_BASE_URL"
        )
    elif not _is_address(base_url):
        yield "✗ model: CALLBOARD_MODEL_BASE_URL is not an address → write it as http://localhost:11434/v1"
        return
    timeout = context.options.timeout
    model = OpenAICompatible(base_url, api_key=key, model=name, timeout_seconds=timeout, max_retries=0)
    try:
        line = await _list_models(model)
        yield line
        if line.startswith("✗"):
            return
        calls = await asyncio.wait_for(_calls_tool(model), timeout)
        tool_format = choose_format(settings.tool_format, model.name, settings.react_models).name
        if calls:
            yield "✓ model: the key is accepted; calls a tool natively: yes"
        elif tool_format in ("auto", "native"):
            yield (
                "✗ model: calls a tool natively: no, in one probe "
                f"→ set CALLBOARD_TOOL_FORMAT=react, or CALLBOARD_REACT_MODELS={model.name}"
            )
            if tool_format == "auto":
                yield await _name_syntax(model)
        else:
            yield f"✓ model: the key is accepted; calls a tool natively: no, which {tool_format} does without"
    except TimeoutError:
        yield "✗ model: it did not end its answer in time → try again with --timeout 120, or another model"
    finally:
        await model.aclose()


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_answer(error: ModelError) -> bool:
    """Return whether the endpoint refused the request itself, so that another request may succeed."""
    return type(error) in (ModelError, ModelRefused)


async def _list_models(model: OpenAICompatible) -> str:
    try:
        names = await model.list_names()
    except ModelError as error:
        if model.name and _is_answer(error):
            return f"– model: the endpoint does not list its models: {error}"
        raise
    if not names:
        return f"{'–' if model.name else '✗'} model: the endpoint lists no model → name one in CALLBOARD_MODEL"
    if model.name and model.name not in names and f"{model.name}:latest" not in names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        return f"✗ model: {model.name} is not there → set CALLBOARD_MODEL to one of these: {shown}"
    return f"✓ model: the endpoint answers and serves {model.name or names[0]}"


async def _calls_tool(model: OpenAICompatible) -> bool:
    """Return whether the model calls the tool of `PROBE` natively."""
    try:
        async with aclosing(model.stream(PROBE)) as deltas:  # type: ignore[type-var] # a generator, declared as an iterator
            async for delta in deltas:
                if isinstance(delta, ToolCallDelta):
                    return True
    except ModelError as error:
        # Servers refuse tools in their own words, for example "… does not support tools".
        if not _is_answer(error) or "tool" not in str(error).lower():
            raise
    return False


async def _name_syntax(model: OpenAICompatible) -> str:
    """Return a line on the syntax in which `auto` reads calls in the model's text."""
    found = find_model_format(model.name, await model.describe())
    if found is not None:
        return f"✓ model: auto reads calls in its text as {found.name}: {found.because} says so"
    return (
        "– model: neither its chat template nor its name tells how it writes calls; auto rescues one at an answer's "
        "end → set CALLBOARD_TOOL_FORMAT to the model's family if you know it"
    )


async def check_embeddings(context: Context) -> AsyncIterator[str]:
    """Have two texts embedded, and compare the dimension with that of stored vectors."""
    endpoint = MemorySettings.load(context.variables).endpoint(timeout_seconds=context.options.timeout)
    if endpoint is None:
        yield "– embeddings: none are set; memories are searched by their words"
        return
    dimension = len((await endpoint.embed(("tea", "a hot drink")))[0])
    yield f"✓ embeddings: the endpoint answers and {endpoint.model} gives vectors of {dimension} numbers"
    database = Store(context.settings.resolved_database_url).database
    vectors = memory_vectors.c
    has_other_dimension = func.length(vectors.vector) != dimension * FLOAT_BYTES
    query = select(func.count(vectors.vector)).where(vectors.model == endpoint.model, has_other_dimension)
    try:
        is_readable = not is_missing(database) and not await database.missing_migrations()
        others = int(await database.scalar(query) or 0) if is_readable else 0
    except StorageError:
        # The check of the database reports this.
        others = 0
    finally:
        await database.close()
    if others:
        yield (
            f"✗ embeddings: {others} memories have vectors of another dimension, which another model of this name "
            "made: they are found by their words alone "
            "→ set CALLBOARD_EMBEDDING_MODEL and CALLBOARD_EMBEDDING_BASE_URL to the model that made them"
        )
