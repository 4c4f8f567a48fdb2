"""The HTTP server: routes, authentication, streams of events, errors as statuses.

Routes of an application, a skill or a package of your own find the parts of the server by `get_server_state(request)`
and the caller by `get_principal(request)`.
"""

from callboard.http.auth import METRICS_PATH, ApiKey, Authenticate, api_key, read_route_path
from callboard.http.body import BodyReservation, read_body, read_past_answers, refuse_invalid
from callboard.http.errors import build_error_object, error_response, find_status
from callboard.http.gate import Access
from callboard.http.principal import Principal, find_bound_user, get_caller_name, get_principal
from callboard.http.shutdown import Shutdown
from callboard.http.sse import RunStream
from callboard.http.state import ServerState, get_server_state
from callboard.http.user_verifier import UserVerifier

__all__ = [
    "METRICS_PATH",
    "Access",
    "ApiKey",
    "Authenticate",
    "BodyReservation",
    "Principal",
    "RunStream",
    "ServerState",
    "Shutdown",
    "UserVerifier",
    "api_key",
    "build_error_object",
    "error_response",
    "find_bound_user",
    "find_status",
    "get_caller_name",
    "get_principal",
    "get_server_state",
    "read_body",
    "read_past_answers",
    "read_route_path",
    "refuse_invalid",
]
