"""The route that Prometheus reads."""

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._http.auth import METRICS_PATH
from callboard._http.state import server_state


async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format, or OpenMetrics where it is asked for; of all workers together."""
    metrics = server_state(request).metrics
    if metrics is None:
        raise HTTPException(404, "CALLBOARD_METRICS is false")
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(_Gathered(await metrics.gather())), headers={"Content-Type": content_type})


@dataclass(frozen=True, slots=True)
class _Gathered(Collector):
    """Metrics that were collected already, as the encoders want them."""

    metrics: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        return self.metrics


ROUTES = [Route(METRICS_PATH, metrics)]
