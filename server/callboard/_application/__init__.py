"""The application: `Callboard` (in `board`) declares it, `Application` (in `application`) serves it.

`Callboard` imports `application`, and with it the web server and the database, only when `asgi` is called.
"""

from callboard._application.board import Callboard

__all__ = ["Callboard"]
