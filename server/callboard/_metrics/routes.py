"""The route that Prometheus reads."""

from prometheus_client.exposition import choose_encoder
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard.http import METRICS_PATH


async def metrics(request: Request) -> Response:
    """Return the metrics of all workers in Prometheus' text format, or in OpenMetrics if the client accepts it."""
    metrics = request.app.state.metrics
    if metrics is None:
        raise HTTPException(404, "CALLBOARD_METRICS is false")
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(metrics), headers={"Content-Type": content_type})


ROUTES = [Route(METRICS_PATH, metrics)]
