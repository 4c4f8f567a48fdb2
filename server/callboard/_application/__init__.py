"""The application: `board` describes it, `application` serves it.

`Callboard.asgi` imports `application`, and with it the web server, the database and the inspector.
"""

from callboard._application.board import Callboard

__all__ = ["Callboard"]
