"""The address to which browsers come back from a sign-in at another service. Its state replaces a key."""

from html import escape
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from callboard.calls.sign_ins import CALLBACK_PATH
from callboard.http.state import get_server_state
from callboard.http.stored_routes import UNCACHED

HEADERS = {
    **UNCACHED,
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    # The address has a code.
    "Referrer-Policy": "no-referrer",
}
CONFIRM = "confirm"


async def come_back(request: Request) -> Response:
    """Hand the query to the sign-in that it belongs to, once the person at the browser has confirmed whose it is."""
    sign_ins = get_server_state(request).services.sign_ins
    assert sign_ins is not None, "a server has them"
    query = dict(request.query_params)
    state = query.get("state", "")
    if (found := await sign_ins.find(state)) and "code" in query and query.pop(CONFIRM, "") != "yes":
        # Otherwise a user could send their address to somebody, and use the service with that person's account.
        user, service = escape(found["user"]), escape(found["service"])
        address = escape(str(request.url.include_query_params(**{CONFIRM: "yes"}).query))
        return _page(
            f"The agents of <b>{user}</b> in Callboard will be able to use <b>{service}</b> with the account that you "
            f'have signed in with.</p><p><a href="?{address}">Continue as {user}</a></p><p>If you are somebody else, '
            "close this page."
        )
    if found is None or not await sign_ins.finish(state, query):
        return _page("This sign-in is over, or is not known here. Ask again in the chat.", HTTPStatus.NOT_FOUND)
    return _page("You can close this page and go on in the chat.")


def _page(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    meta = '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
    page = f'<!doctype html><html lang="en">{meta}<title>Callboard</title><p>{text}</p>'
    return HTMLResponse(page, status, HEADERS)


ROUTES = [Route(CALLBACK_PATH, come_back, methods=["GET"])]
