"""Access control of the inspector: sessions, the origin of requests, form tokens, and security headers.

The server checks the request first. This module then refuses every other origin, even those of
`CALLBOARD_CORS_ORIGINS`. They may call the API, but they may neither read these pages nor send their forms.
"""

import asyncio
from http import HTTPStatus
from urllib.parse import parse_qsl, quote

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from callboard._inspect.rendering import render
from callboard._inspect.signing_in import SigningIn, delete_cookie, send_cookie
from callboard._inspect.visit import SCOPE_KEY, Visit, read_visit
from callboard.errors import CallboardError, RequestError, RequestTimeout, RequestTooLarge
from callboard.http import get_server_state
from callboard.http.errors import find_status
from callboard.http.gate import Access
from callboard.storage.values import ANY_USER
from callboard.text import storable

MAX_FORM_BYTES = 256 * 1024
MAX_FIELDS = 100
FORM_SECONDS = 60.0
NUL_AS_KEPT = quote(storable("\0")).encode()

HEADERS = {
    # Only this server's scripts, styles and pictures, nothing inline, and no frame around the page.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not `no-referrer`: forms would then be sent with `Origin: null`, which the gate refuses.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "private, no-store",
}


class AccessControl:
    """Middleware that refuses requests without a session, except for assets and the sign-in page."""

    def __init__(self, app: ASGIApp, signing_in: SigningIn, access: Access) -> None:
        self._app = app
        self._signing_in = signing_in
        self._access = Access(access.hosts, frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the pages, or refuse it."""
        if scope["type"] != "http":
            # The inspector serves no WebSocket.
            await send({"type": "websocket.close"})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        # Stored text has no NUL (`storable` replaces it) and PostgreSQL accepts none, so it is replaced here too.
        query = scope["query_string"].replace(b"%00", NUL_AS_KEPT)
        scope = {**scope, "query_string": query}
        request = Request(scope, receive)
        base = scope["root_path"]
        try:
            self._access.check(scope)
            response = await self._check(request, Visit(base, None, request.query_params.get("user") or None))
        except CallboardError as error:
            visit = Visit(base, None)
            response = render("refused.html", visit, find_status(error), title="Refused", reason=str(error))
        # Log lines of this request contain the caller's name, as for requests to the API.
        with bound_contextvars(**({"key": scope[SCOPE_KEY].caller} if SCOPE_KEY in scope else {})):
            await (response or self._app)(scope, receive, send_with_headers)

    async def _check(self, request: Request, visit: Visit) -> Response | None:
        """Return None if the request may pass, and store its visit in its scope. Otherwise return the response."""
        path = request.scope["path"].removeprefix(visit.base)
        if path.startswith("/assets/"):
            return None
        if path == "/sign-in" and request.method == "POST":
            return await self._sign_in(request, visit)
        session = await self._signing_in.find(request)
        if session is None:
            return _ask_for_key(visit, request)
        form = await _read_form(request) if request.method == "POST" else {}
        if request.method == "POST" and not session.owns(form.get("token", "")):
            raise RequestError("this form is from another session, or too old: reload the page and send it again")
        if path == "/sign-out" and request.method == "POST":
            response = RedirectResponse(f"{visit.base}/", HTTPStatus.SEE_OTHER)
            delete_cookie(response, visit.base or "/")
            return response
        state = get_server_state(request)
        user = await state.store.overview(ANY_USER).find_user_id(visit.user) if visit.user else None
        request.scope[SCOPE_KEY] = Visit(
            visit.base, session, user, self._signing_in.is_needed, state.user_verifier.is_required, form
        )
        await request.app.state.watch.forget_deleted_chats(state.store)
        return None

    async def _sign_in(self, request: Request, visit: Visit) -> Response:
        # There is no session yet, so there is no form token to check. The key itself is the proof.
        form = await _read_form(request)
        session = await self._signing_in.sign_in(request, form.get("key", "")) if self._signing_in.is_needed else None
        if session is None:
            return _ask_for_key(visit, request, is_wrong=True)
        # Only a path on this server, because a redirect to another site would help phishing.
        wanted = form.get("wanted", "")
        path = wanted if wanted.startswith("/") and not wanted.startswith(("//", "/\\")) else "/"
        response = RedirectResponse(f"{visit.base}{path}", HTTPStatus.SEE_OTHER)
        send_cookie(response, session, visit.base or "/", is_secure=request.scope["scheme"] == "https")
        return response


def keep_session(request: Request, response: Response) -> Response:
    """Return the response, with the session's cookie if the session is new."""
    visit = read_visit(request)
    if visit.session and visit.session.is_new:
        send_cookie(response, visit.session, visit.base or "/", is_secure=request.scope["scheme"] == "https")
    return response


def _ask_for_key(visit: Visit, request: Request, *, is_wrong: bool = False) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    wanted = request.scope["path"].removeprefix(visit.base) + query if request.method == "GET" else "/"
    page = render("sign_in.html", visit, HTTPStatus.UNAUTHORIZED, title="Sign in", wanted=wanted, is_wrong=is_wrong)
    # If the session ends while a page is open, htmx reloads that page instead of inserting the sign-in page.
    page.headers["HX-Refresh"] = "true"
    return page


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises `RequestTooLarge`, `RequestTimeout` or `RequestError`."""
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_FORM_BYTES:
                    raise RequestTooLarge(f"a form has at most {MAX_FORM_BYTES // 1024} KiB")
    except ClientDisconnect:
        raise RequestError("the browser closed the connection before the form was complete") from None
    except TimeoutError:
        raise RequestTimeout(f"the form was not complete after {FORM_SECONDS:g} s: send it again") from None
    try:
        fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        return {name: storable(value) for name, value in fields}
    except ValueError:
        raise RequestError(f"a form has at most {MAX_FIELDS} fields") from None
