"""The Callboard protocol, version 1: events, requests, and the encoding of server-sent events.

It depends on pydantic only. The server sends these types. The pipe parses the same format with its own code, because it
must be a single file.

The public names are the `__all__` of these modules; in `events` these are all classes and types.
"""

from callboard_protocol import events, requests, sse
from callboard_protocol.events import *  # noqa: F403 - so that a new event is declared in one place only
from callboard_protocol.requests import *  # noqa: F403 - the same
from callboard_protocol.sse import *  # noqa: F403 - the same

globals()["__all__"] = [name for module in (events, requests, sse) for name in vars(module)["__all__"]]
