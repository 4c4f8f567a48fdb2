"""Check of the embedding endpoint: reachable, key accepted, model there, and vectors of the dimension that is kept."""

from collections.abc import AsyncIterator

from sqlalchemy import func, select

from callboard._cli.doctor.findings import Context, Finding, broken, unset, well
from callboard._settings import Settings
from callboard.errors import ModelError, StorageError
from callboard.skills.memory import MemorySettings
from callboard.storage import Store
from callboard.storage.sql.tables import memory_vectors

SUBJECT = "embeddings"
PROBE = ("tea", "a hot drink")
FLOAT_BYTES = 4


async def check_embeddings(context: Context) -> AsyncIterator[Finding]:
    """Have two texts embedded, and compare with the vectors of memories that are kept."""
    settings = context.settings
    endpoint = MemorySettings.load(context.variables).endpoint(timeout_seconds=context.timeout_seconds)
    if endpoint is None:
        yield unset(SUBJECT, "none are set; memories are searched by their words")
        return
    try:
        vectors = await endpoint.embed(PROBE)
    except ModelError as error:
        yield broken(SUBJECT, error)
        return
    dimension = len(vectors[0])
    yield well(SUBJECT, f"the endpoint answers and {endpoint.model} gives vectors of {dimension} numbers")
    try:
        others = await _count_other_dimensions(settings, endpoint.model, dimension)
    except StorageError:
        # What ails the database, its own check says.
        return
    if others:
        yield broken(
            SUBJECT,
            f"{others} memories have vectors of another dimension, which another model of this name made: they are "
            "found by their words alone",
            "set CALLBOARD_EMBEDDING_MODEL and CALLBOARD_EMBEDDING_BASE_URL to the model that made them",
        )


async def _count_other_dimensions(settings: Settings, model: str, dimension: int) -> int:
    store = Store(settings.resolved_database_url)
    try:
        if store.database.file is not None and not store.database.file.exists():
            return 0
        if await store.database.missing_migrations():
            return 0
        query = (
            select(func.count())
            .select_from(memory_vectors)
            .where(memory_vectors.c.model == model, func.length(memory_vectors.c.vector) != dimension * FLOAT_BYTES)
        )
        return int(await store.database.scalar(query) or 0)
    finally:
        await store.close()
