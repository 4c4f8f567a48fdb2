"""The HTTP server: routes, authentication, streams of events, errors as statuses.

Routes of an application, a skill or a package of your own find the parts of the server by `get_server_state(request)`
and the caller by `get_principal(request)`.
"""

from callboard.http.auth import Authenticate, Principal, api_key, get_principal
from callboard.http.state import ServerState, get_server_state

__all__ = ["Authenticate", "Principal", "ServerState", "api_key", "get_principal", "get_server_state"]
