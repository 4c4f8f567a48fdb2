"""What llama.cpp, Ollama, vLLM and SGLang say of a model, as `pages` of an `OpenAIServer`: their routes and fields.

The shapes are llama.cpp's `tools/server/README.md`, Ollama's `docs/api.md`, vLLM's `serve/tokenize` and SGLang's
`http_server.py`.
"""

from collections.abc import Mapping
from typing import Any

from tests.fakes.openai_server import Page


def llama_cpp(template: str, *, prompt: str = "", path: str = "/models/model.gguf", **props: Any) -> dict[str, Page]:
    """`GET /props` and `POST /apply-template`; the latter only with a `prompt`."""
    shown = {
        "default_generation_settings": {"id": 0, "n_ctx": 4096, "params": {"temperature": 0.8}},
        "total_slots": 1,
        "model_alias": "model",
        "model_path": path,
        "modalities": {"vision": False, "audio": False},
        "chat_template": template,
        "chat_template_caps": {"supports_tools": True, "supports_tool_calls": True},
        "bos_token": "<s>",
        "eos_token": "</s>",
        "build_info": "b8681",
        "is_sleeping": False,
        **props,
    }
    return {"GET /props": shown, **({"POST /apply-template": {"prompt": prompt}} if prompt else {})}


def ollama(template: str, *, basename: str = "", capabilities: tuple[str, ...] = ("completion",)) -> dict[str, Page]:
    """`POST /api/show`."""
    info = {"general.architecture": "llama", "general.basename": basename, "general.parameter_count": 8030261248}
    return {
        "POST /api/show": {
            "license": "A licence.",
            "modelfile": "FROM model",
            "parameters": "temperature 0.7",
            "template": template,
            "details": {"parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"]},
            "model_info": info,
            "capabilities": list(capabilities),
            "modified_at": "2026-01-01T00:00:00Z",
        }
    }


def vllm(*, prompt: str = "", model: str = "m", root: str = "") -> dict[str, Page]:
    """`POST /tokenize` and `/detokenize`."""
    tokens = [ord(letter) for letter in prompt]

    def detokenize(body: Mapping[str, Any]) -> dict[str, Any]:
        return {"prompt": "".join(map(chr, body["tokens"]))}

    card = {"id": model, "object": "model", "owned_by": "vllm", "root": root or model, "parent": None}
    pages: dict[str, Page] = {"GET /v1/models": {"object": "list", "data": [{**card, "max_model_len": 4096}]}}
    if prompt:
        pages["POST /tokenize"] = {"count": len(tokens), "max_model_len": 4096, "tokens": tokens, "token_strs": None}
        pages["POST /detokenize"] = detokenize
    return pages


def sglang(path: str) -> dict[str, Page]:
    """`GET /model_info`."""
    return {
        "GET /model_info": {
            "model_path": path,
            "tokenizer_path": path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
        }
    }
