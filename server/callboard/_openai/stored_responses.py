"""Stores responses and their items, for later requests that refer to them."""

import anyio
import structlog

from callboard._openai.client_functions import Json
from callboard.errors import StorageError
from callboard.redaction import Redaction
from callboard.runs import Run
from callboard.storage.sql.responses import Responses
from callboard.storage.values import RESPONSE_PREFIX

ITEM_IDS = "item_ids"
"""The field of a stored response that replaces `output`."""

_NOT_STORED = frozenset({"files", "embeds"})
"""Fields of a call that no model gets, so they are not stored; a picture may have megabytes."""

_log = structlog.get_logger(__name__)


async def keep_response(whole: Json, run: Run, redaction: Redaction, responses: Responses) -> None:
    """Store a response. An error of the database is only logged.

    `redaction` removes secrets from the client's own texts, which the response repeats.
    """
    output = [{name: value for name, value in item.items() if name not in _NOT_STORED} for item in whole["output"]]
    fields = {name: value for name, value in whole.items() if name != "output"}
    head = await redaction.large({**fields, ITEM_IDS: [item["id"] for item in output]})
    try:
        # Shielded: the client may leave now, and it knows these items already.
        with anyio.CancelScope(shield=True):
            await responses.keep([*output, head], run.identity.chat_id)
        _log.info("response_kept", run_id=run.run_id, items=len(output))
    except StorageError as error:
        _log.warning("response_not_kept", run_id=run.run_id, error=str(error))


async def load_response(response_id: str, responses: Responses) -> Json | None:
    """Return a stored response, None if this user has none with that id. Raises `StorageError`."""
    if not response_id.startswith(RESPONSE_PREFIX):
        return None
    head = (await responses.find([response_id])).get(response_id)
    if head is None:
        return None
    whole = dict(head)
    ids: list[str] = whole.pop(ITEM_IDS)
    items = await responses.find(ids)
    return {**whole, "output": [items[item_id] for item_id in ids if item_id in items]}
