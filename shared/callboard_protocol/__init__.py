"""The Callboard protocol, version 1: events, requests, and server-sent events as bytes.

Below it is nothing but pydantic. The server sends these types; the pipe carries its own
reading of the same wire, since it must be a single file.

Each module says itself what is public in it; of `events` that is every class and constant.
"""

from callboard_protocol import endings, events, requests, sse
from callboard_protocol.endings import *  # noqa: F403 - the same as below
from callboard_protocol.events import *  # noqa: F403 - so that a new event is written down once
from callboard_protocol.requests import *  # noqa: F403 - the same
from callboard_protocol.sse import *  # noqa: F403 - the same

globals()["__all__"] = [name for module in (endings, events, requests, sse) for name in vars(module)["__all__"]]
