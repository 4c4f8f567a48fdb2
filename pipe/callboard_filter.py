"""
title: Callboard approvals
author: Callboard
version: 0.1.0
license: MIT
description: For use with the pipe: runs a tool call whose card a user approves minutes or days later.
required_open_webui_version: 0.12.0
"""

# A function of type Filter, active for all models. When a user approves a pending card, Open WebUI looks the tool up
# again, and knows no tool of a Callboard server. This function adds it. The pipe, whose id is the id of this function
# without `SUFFIX`, asks the server to run the call.

import logging
from typing import Any

log = logging.getLogger("callboard.filter")

Json = dict[str, Any]

SUFFIX = "_approvals"  # At the end of this function's id, after the id of the pipe.


class Filter:
    """The class that Open WebUI loads."""

    async def request(
        self,
        body: Json,
        __id__: str = "",
        __metadata__: Json | None = None,
        __user__: Json | None = None,
        __model__: Json | None = None,
        __request__: Any = None,
    ) -> Json:
        """Add the tools of approved calls to a request that continues an answer of the pipe."""
        metadata = __metadata__ or {}
        pipe_id = __id__.removesuffix(SUFFIX)
        if metadata.get("tool_approval_resume") != "tools" or not is_of_pipe(__model__ or {}, pipe_id):
            return body
        try:
            from open_webui.functions import get_function_module_by_id

            pipe = await get_function_module_by_id(__request__, pipe_id)
            await pipe.offer_approved(__user__ or {}, metadata)
        except Exception:
            # Open WebUI would end the answer. Without the tool, its card says that there is none.
            log.exception("Callboard: the tools of approved calls could not be added")
        return body


def is_of_pipe(model: Json, pipe_id: str) -> bool:
    """Return whether the pipe provides the model, or the model that a preset is based on."""
    base = (model.get("info") or {}).get("base_model_id")
    return any(str(one).startswith(f"{pipe_id}.") for one in (model.get("id"), base))
