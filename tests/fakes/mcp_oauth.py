"""An MCP server with the official SDK that its users sign in to, and a strict authorization server.

Both are reached over real HTTP. The account that signs in is the browser's cookie `account`.
"""

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import httpx
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolRequestParams, RequestParams
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.fakes.http_server import HttpServer

SCOPE = "notes"


class AuthorizationServer:
    """Checks PKCE, the resource, the redirect address and the client; codes and refresh tokens can be used once.

    `clients` are the secrets by client id; "" for a public client. `tokens` are the accounts by access token; `issued`
    are all secrets that it has made. `named` replaces fields of its metadata, `answered` of its answers to browsers.
    `requests` counts the requests by path, and grants by type. `before_refresh` runs before an answer to a refresh.
    """

    def __init__(self) -> None:
        self.clients: dict[str, str] = {}
        self.redirects: dict[str, list[str]] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refresh: dict[str, dict[str, str]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.issued: list[str] = []
        self.named: dict[str, Any] = {}
        self.answered: dict[str, str] = {}
        self.requests: Counter[str] = Counter()
        self.before_refresh: Callable[[], Awaitable[None]] | None = None
        self.resource = ""
        well_known = "/.well-known/oauth-authorization-server"
        self.app = Starlette(
            routes=[
                Route(well_known, self._describe),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._exchange, methods=["POST"]),
            ]
        )
        self.server = HttpServer(self.app)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def verify_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    def revoke(self) -> None:
        """End all access tokens."""
        self.tokens.clear()

    async def _describe(self, _: Request) -> Response:
        endpoints = {"authorization": "authorize", "token": "token", "registration": "register"}
        return JSONResponse(
            {
                "issuer": self.issuer,
                **{f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in endpoints.items()},
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                **self.named,
            }
        )

    async def _register(self, request: Request) -> Response:
        self.requests["/register"] += 1
        wanted = await request.json()
        client_id = token_urlsafe(8)
        self.clients[client_id] = ""
        self.redirects[client_id] = wanted["redirect_uris"]
        return JSONResponse({**wanted, "client_id": client_id, "token_endpoint_auth_method": "none"}, 201)

    async def _authorize(self, request: Request) -> Response:
        self.requests["/authorize"] += 1
        query = dict(request.query_params)
        client_id = query.get("client_id", "")
        if client_id not in self.clients or query.get("redirect_uri") not in self.redirects.get(client_id, ()):
            return PlainTextResponse("unknown client or address", 400)
        if query["response_type"] != "code" or query["code_challenge_method"] != "S256" or not query["state"]:
            return PlainTextResponse("no code, challenge or state", 400)
        if query.get("resource") != self.resource or query.get("scope") != SCOPE:
            return PlainTextResponse("another resource or scope", 400)
        back = {"state": query["state"], "iss": self.issuer}
        account = request.cookies.get("account")
        if account is None:
            back["error"] = "access_denied"
        else:
            back["code"] = self._make()
            self.codes[back["code"]] = {**query, "account": account}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode({**back, **self.answered})}", 302)

    async def _exchange(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        grant = form["grant_type"]
        self.requests[grant] += 1
        client_id = self._authenticate(request, form)
        if client_id is None:
            return JSONResponse({"error": "invalid_client", "error_description": str(form)}, 401)
        if form.get("resource") != self.resource:
            return JSONResponse({"error": "invalid_target"}, 400)
        match grant:
            case "authorization_code":
                asked = self.codes.pop(form["code"], {})
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                same = {"client_id": client_id, "redirect_uri": form["redirect_uri"], "code_challenge": challenge}
                account = asked["account"] if same.items() <= asked.items() else ""
            case "refresh_token":
                if self.before_refresh:
                    await self.before_refresh()
                kept = self.refresh.pop(form["refresh_token"], {})
                account = kept["account"] if kept.get("client_id") == client_id else ""
            case "client_credentials":
                account = client_id if self.clients[client_id] else ""
        if not account:
            # As careless servers do, it repeats what it was sent.
            return JSONResponse({"error": "invalid_grant", "error_description": str(form)}, 400)
        token = self._make()
        self.tokens[token] = AccessToken(
            token=token, client_id=client_id, scopes=[SCOPE], subject=account, resource=self.resource
        )
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
        if grant == "client_credentials":
            return JSONResponse(answer)
        refresh_token = self._make()
        self.refresh[refresh_token] = {"client_id": client_id, "account": account}
        return JSONResponse({**answer, "refresh_token": refresh_token})

    def _authenticate(self, request: Request, form: dict[str, str]) -> str | None:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            client_id, _, secret = map(unquote, base64.b64decode(value).decode().partition(":"))
        else:
            client_id, secret = form.get("client_id", ""), form.get("client_secret", "")
        return client_id if self.clients.get(client_id) == secret else None

    def _make(self) -> str:
        secret = token_urlsafe(24)
        self.issued.append(secret)
        return secret


class TaskParams(RequestParams):
    task_id: str


class EndlessTasks(Extension):
    """Turns all calls into tasks once `is_on`. The first request about a task ends all tokens."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, authorization: AuthorizationServer) -> None:
        self.authorization = authorization
        self.is_on = False

    def methods(self) -> list[MethodBinding]:
        return [MethodBinding("tasks/get", TaskParams, self._get)]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        return {"resultType": "task", **self._show()} if self.is_on else await call_next(ctx)

    async def _get(self, _: ServerRequestContext[Any, Any], _params: TaskParams) -> HandlerResult:
        self.authorization.revoke()
        self.authorization.refresh.clear()
        return self._show()

    def _show(self) -> dict[str, Any]:
        times = {"createdAt": "2026-08-01T00:00:00Z", "lastUpdatedAt": "2026-08-01T00:00:00Z", "ttlMs": None}
        return {"taskId": "t", "status": "working", "pollIntervalMs": 100, **times}


class Notes:
    """The MCP server. `url` is its address, `authorization` its authorization server. `metadata` replaces its own.

    `guest`: the token of requests without one that are no calls. `is_older`: it has sessions, as older protocols have.
    """

    def __init__(self) -> None:
        self.authorization = AuthorizationServer()
        self.tasks = EndlessTasks(self.authorization)
        self.description = "The account that reads this."
        self.metadata: dict[str, Any] | None = None
        self.guest = ""
        self.is_older = False
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Notes"]:
        """Serve both."""
        async with AsyncExitStack() as closing:
            await closing.enter_async_context(self.authorization.server)
            server = HttpServer(self._route, interface="asgi3")
            await closing.enter_async_context(server)
            self.url = self.authorization.resource = f"http://127.0.0.1:{server.port}/mcp"
            auth = AuthSettings.model_validate(
                {
                    "issuer_url": self.authorization.issuer,
                    "resource_server_url": self.url,
                    "required_scopes": [SCOPE],
                    "validate_token_resource": True,
                }
            )
            mcp = MCPServer(
                "notes", instructions="Read slowly.", auth=auth, token_verifier=self, extensions=[self.tasks]
            )
            mcp.add_tool(self._whoami, "whoami", description=self.description)
            mcp.add_tool(self._leak, "leak")
            self._app = mcp.streamable_http_app()
            over = asyncio.Event()

            async def hold_sessions(started: asyncio.Future[None]) -> None:
                # In a task of its own, because fixtures begin and end in different ones.
                async with mcp.session_manager.run():
                    started.set_result(None)
                    await over.wait()

            started = asyncio.get_running_loop().create_future()
            holding = asyncio.create_task(hold_sessions(started))
            await started
            try:
                yield self
            finally:
                over.set()
                await holding

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access of a token, for the SDK."""
        return self.authorization.verify_token(token)

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith("/.well-known/oauth-protected-resource") and self.metadata is not None:
            described = {"resource": self.url, "scopes_supported": [SCOPE], **self.metadata}
            await JSONResponse(described)(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        unread = [{"type": "http.request", "body": body}]
        if self.guest and not Headers(scope=scope).get("authorization") and b'"tools/call"' not in body:
            scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {self.guest}".encode())]

        async def read_again() -> Any:
            return unread.pop() if unread else await receive()

        if self.is_older and b'"server/discover"' in body and Headers(scope=scope).get("authorization"):
            await PlainTextResponse("Not Found", 404)(scope, read_again, send)
        else:
            await self._app(scope, read_again, send)

    async def _whoami(self) -> str:
        access = get_access_token()
        assert access is not None
        return str(access.subject)

    async def _leak(self) -> str:
        """Repeats the token of the request, as a careless server does."""
        access = get_access_token()
        assert access is not None
        raise ToolError(f"the token {access.token} is odd")


async def browse(address: str, account: str | None, callback: httpx.AsyncClient, *, goes_on: bool = True) -> str:
    """Open an address as a browser does that is signed in as the account, and return the last page's text.

    `callback` is the client of the server at `https://callboard.test`. `goes_on`: the user confirms there.
    """
    cookies = {"account": account} if account else {}
    async with httpx.AsyncClient(verify=False, cookies=cookies) as http:
        answer = await http.get(address)
    if not answer.has_redirect_location:
        return answer.text
    back = urlsplit(answer.headers["location"])
    assert back.netloc == "callboard.test"
    return await come_back(f"{back.path}?{back.query}", callback, goes_on=goes_on)


async def come_back(path: str, callback: httpx.AsyncClient, *, goes_on: bool = True) -> str:
    """Open the callback with this path and query, as a browser that comes from another site."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    page = await callback.get(path, headers=headers)
    if goes_on and "confirm=yes" in page.text:
        page = await callback.get(f"{path}&confirm=yes", headers={**headers, "Sec-Fetch-Site": "same-origin"})
    return page.text
