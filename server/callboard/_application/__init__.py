"""The application: `Callboard` (in `board`) declares it, `Application` (in `application`) serves it.

Only `Callboard.asgi` imports `application`, and with it the web server, the database and the inspector.
"""

from callboard._application.board import Callboard

__all__ = ["Callboard"]
