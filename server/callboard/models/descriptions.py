"""Asks an endpoint for facts about a model: its chat template, a prompt made with it, and its other names.

There is no standard for this, and an address does not tell which program serves it. So all known programs' requests are
sent at once: llama.cpp's `/props` and `/apply-template`, Ollama's `/api/show`, vLLM's `/tokenize` and `/detokenize`,
SGLang's `/model_info`, and `root` in vLLM's list of models. LM Studio gives no template. An unknown path answers 404.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import httpx

from callboard.models.endpoint_stream import read_models, read_within, send
from callboard.models.model import ModelDescription

DESCRIPTION_SECONDS = 3.0
"""The time limit for all requests together."""
MAX_DESCRIPTION_BYTES = 4 * 2**20
"""The largest answer that is read. Ollama's contains the licence and a line for each tensor."""
MAX_PROMPT_TOKENS = 2**14
"""The most tokens that are sent back for detokenization. A question with a tool takes some hundreds."""
MAX_OTHER_NAME_CHARS = 256

_MESSAGES = [{"role": "user", "content": "What is the time?"}]
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_time",
            "description": "Return the time.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "A city."}}},
        },
    }
]
"""A conversation with a tool: a prompt made from it contains the template's instructions for calls."""


async def describe_model(client: httpx.AsyncClient, model: str) -> ModelDescription:
    """Return the facts that the endpoint at the client's `base_url` reports about `model`.

    Redirects are not followed.
    """
    questions = [_llama_cpp, _ollama, _vllm, _sglang, _read_models_list]
    tasks = [asyncio.create_task(question(client, model)) for question in questions]
    try:
        await asyncio.wait(tasks, timeout=DESCRIPTION_SECONDS)
        return _merge_descriptions([task.result() for task in tasks if task.done()])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(client: httpx.AsyncClient, method: str, path: str, **content: Any) -> Mapping[str, Any]:
    """Return the JSON object that the endpoint answers, empty for any other answer.

    A `path` with a leading slash is beside the path of the OpenAI-compatible API, any other path is within it.
    """
    root = client.base_url.path.rstrip("/").removesuffix("/v1")
    try:
        url = client.base_url.copy_with(path=root + path) if path.startswith("/") else path
        request = client.build_request(method, url, **content)
        async with aclosing(await send(client, request, follow_redirects=False)) as response:
            if response.status_code != httpx.codes.OK or "json" not in response.headers.get("Content-Type", ""):
                return {}
            body = await read_within(MAX_DESCRIPTION_BYTES, response.aiter_bytes())
        # In a thread, because parsing megabytes of JSON would block the event loop.
        answer = await asyncio.to_thread(json.loads, body) if body else None
    # A compressed body that cannot be decompressed raises `ValueError` too.
    except (httpx.HTTPError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


async def _llama_cpp(client: httpx.AsyncClient, model: str) -> ModelDescription:
    # With several models, a llama.cpp router would otherwise load this one.
    props = await _ask(client, "GET", "/props", params={"model": model, "autoload": "false"})
    template = _text(props, "chat_template_tool_use") + _text(props, "chat_template")
    if not template:
        return ModelDescription()
    question = {"model": model, "messages": _MESSAGES, "tools": _TOOLS}
    answer = await _ask(client, "POST", "/apply-template", json=question)
    return ModelDescription(template, _text(answer, "prompt"), _names(props, "model_path"), "llama.cpp")


async def _ollama(client: httpx.AsyncClient, model: str) -> ModelDescription:
    shown = await _ask(client, "POST", "/api/show", json={"model": model})
    details = shown.get("model_info")
    names = _names(details, "general.basename") if isinstance(details, dict) else ()
    if not (_text(shown, "template") or names):
        return ModelDescription()
    return ModelDescription(_text(shown, "template"), other_names=names, program="Ollama")


async def _vllm(client: httpx.AsyncClient, model: str) -> ModelDescription:
    question = {"model": model, "messages": _MESSAGES, "tools": _TOOLS, "add_generation_prompt": True}
    answer = await _ask(client, "POST", "/tokenize", json=question)
    tokens = answer.get("tokens")
    if not isinstance(tokens, list) or not 0 < len(tokens) <= MAX_PROMPT_TOKENS:
        return ModelDescription()
    prompt = _text(await _ask(client, "POST", "/detokenize", json={"model": model, "tokens": tokens}), "prompt")
    return ModelDescription(prompt=prompt, program="vLLM") if prompt else ModelDescription()


async def _sglang(client: httpx.AsyncClient, model: str) -> ModelDescription:  # noqa: ARG001 - asked as the others
    names = _names(await _ask(client, "GET", "/model_info"), "model_path")
    return ModelDescription(other_names=names, program="SGLang") if names else ModelDescription()


async def _read_models_list(client: httpx.AsyncClient, model: str) -> ModelDescription:
    for entry in read_models(await _ask(client, "GET", "models")):
        if entry["id"] == model:
            # For an adapter, `root` is the adapter and `parent` the model that it adapts.
            return ModelDescription(other_names=(*_names(entry, "root"), *_names(entry, "parent")))
    return ModelDescription()


def _merge_descriptions(descriptions: list[ModelDescription]) -> ModelDescription:
    """Return the first description with a template or a prompt, with the names of all."""
    names = tuple(dict.fromkeys(name for description in descriptions for name in description.other_names))
    first = next((known for known in descriptions if known.template or known.prompt), None)
    if first is None:
        first = next((known for known in descriptions if known.other_names), ModelDescription())
    return ModelDescription(first.template, first.prompt, names, first.program)


def _text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    return value if isinstance(value, str) else ""


def _names(answer: Mapping[str, Any], key: str) -> tuple[str, ...]:
    name = _text(answer, key).rstrip("/")
    # The last two parts of a path are the maker and the model.
    name = "/".join(name.replace("\\", "/").split("/")[-2:])
    return (name,) if 0 < len(name) <= MAX_OTHER_NAME_CHARS and name.isprintable() else ()
