"""Authorization of requests to MCP servers over HTTP, with the official SDK's flows.

https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization

The SDK's own `httpx2.Auth` is not used as such: it lets a user's requests wait for each other's answers, and after a
restart it does not know where to refresh a token.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from http import HTTPStatus
from itertools import count
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from callboard._version import __version__
from callboard.calls import ToolContext
from callboard.calls.sign_ins import SIGN_IN_SECONDS, SignIns
from callboard.errors import AddressRefused, SettingsError, StorageError, ToolError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.elicitation import check_web_address
from callboard.skills.mcp.signals import Signals, sent_call
from callboard.skills.web.client import guarded_client
from callboard.skills.web.guard import AllowList, Guard

MAX_ANSWER_BYTES = 256 * 1024
MAX_TOKENS = 2
"""The most new tokens for one request: a refreshed token, and the token of a new sign-in."""

_CODE = re.compile(r"""(?:^|"error"\s*:\s*")([a-z_]{1,40})(?:$|")""")
"""An error code of OAuth, alone or in JSON. Descriptions are left out: careless servers repeat secrets in them."""


class SignInError(ConnectionRefusedError):
    """There is no token for a request; the message is the reason, for the model."""


class Account(BaseModel):
    """The tokens of an account at a server, and the data that a refresh needs. It is the storage of an SDK's flow."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    @property
    def token(self) -> str:
        """The access token, "" if there is none."""
        return self.tokens.access_token if self.tokens else ""

    async def get_tokens(self) -> OAuthToken | None:  # noqa: D102 - the SDK's storage
        return self.tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:  # noqa: D102 - as above
        return self.client

    async def set_tokens(self, tokens: OAuthToken) -> None:  # noqa: D102 - as above
        self.tokens = tokens

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:  # noqa: D102 - as above
        self.client = client_info


class Authorization(httpx2.Auth):
    """Adds an account's token to requests, and gets a new token when the server demands it.

    The account belongs to the user with `user_id`, or to Callboard itself with client credentials. Without an account,
    a demand ends in `Signals.sign_in_reason`.
    """

    def __init__(
        self, declaration: ServerDeclaration, signals: Signals, sign_ins: SignIns | None, user_id: str | None
    ) -> None:
        self._declaration = declaration
        self._signals = signals
        self._sign_ins = sign_ins
        self._user_id = user_id
        self._own = Account()
        self._lock = asyncio.Lock()
        self._failure: SignInError | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request, again with another token if the server demands one."""
        for number in count():
            token = ""
            request.headers.pop("Authorization", None)
            # Without the database the server's refusal ends in `_get_token`, which gives the reason.
            with suppress(SettingsError, StorageError):
                token = (await self._load()).token
            if token:
                request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if not demands_token(response):
                return
            try:
                await self._get_token(request, response, token, number)
            except SignInError as error:
                if (call := sent_call.get()) is not None:
                    call.sign_in_reason = str(error)
                    return
                # A request of no call fails itself, and so does its connection.
                if not self._declaration.oauth.is_own:
                    self._signals.sign_in_reason = str(error)
                raise

    async def _load(self) -> Account:
        # Read each time, because another server may have refreshed the token, or the user may have been deleted.
        if self._user_id and self._sign_ins:
            kept = await self._sign_ins.load(self._user_id, self._declaration.url)
            self._own = Account()
            with suppress(ValidationError):  # none, or of another version
                self._own = Account.model_validate(kept)
            self._hide()
        return self._own

    async def _save(self, account: Account) -> None:
        self._own = account
        self._hide()
        if self._user_id and self._sign_ins:
            await self._sign_ins.save(self._user_id, self._declaration.url, account.model_dump(mode="json"))

    def _hide(self) -> None:
        """Remove the account's secrets from all texts of the connection."""
        tokens, client = self._own.tokens, self._own.client
        refresh_token, secret = tokens and tokens.refresh_token, client and client.client_secret
        self._declaration.hide.add(self._own.token, refresh_token or "", secret or "")

    async def _get_token(self, request: httpx2.Request, response: httpx2.Response, refused: str, number: int) -> None:
        """Get a new token after a refusal; `number` counts the tokens of this request. Raises `SignInError`."""
        if number == MAX_TOKENS:
            raise SignInError(f"it answers HTTP {response.status_code} to a new token too")
        before = self._failure
        async with self._lock:
            if self._failure and self._failure is not before:
                raise self._failure  # the user was asked meanwhile, and is not asked again
            try:
                account = await self._load()
                if account.token not in ("", refused):
                    return  # another request has got it meanwhile
                probe = httpx2.Request("POST", request.url, headers=request.headers)
                probe.headers.pop("Authorization", None)
                can_refresh = account.tokens and account.tokens.refresh_token and not _is_step_up(response)
                if not number and can_refresh:
                    is_refreshed = await self._run(account, probe, None)
                    if is_refreshed or await self._load() != account:
                        return  # refreshed here, or by another server, which ended the old refresh token
                if not (self._declaration.oauth.is_own or self._context):
                    raise SignInError("each user signs in with their first call")  # noqa: TRY301 - as a failed flow
                await response.aread()
                await self._run(Account(), probe, self._write_demand(response, account))
            except Exception as error:  # noqa: BLE001 - servers choose the texts that the SDK reads, and so its errors
                self._failure = SignInError(_describe(error))
                raise self._failure from None

    @property
    def _context(self) -> ToolContext | None:
        """The call whose user can be asked."""
        call = sent_call.get()
        context = call.context if call else self._signals.asker
        is_same = context is not None and context.user is not None and context.user.id == self._user_id
        return context if is_same else None

    def _make_flow(self, account: Account) -> OAuthClientProvider:
        """Return the SDK's flow: it refreshes the account's token, or gets one for an account without tokens."""
        url, oauth = self._declaration.url, self._declaration.oauth
        if oauth.is_own:
            return ClientCredentialsOAuthProvider(
                url, account, oauth.client_id, oauth.client_secret, issuer=oauth.issuer
            )
        if self._sign_ins is None:
            raise SignInError("it works only in a running Callboard server")
        callback = AnyUrl(self._sign_ins.callback_url)
        if oauth.client_id and account.client is None:
            account.client = OAuthClientInformationFull(
                client_id=oauth.client_id,
                client_secret=oauth.client_secret or None,
                token_endpoint_auth_method="client_secret_basic" if oauth.client_secret else "none",
                redirect_uris=[callback],
                issuer=oauth.issuer or None,
            )
        metadata = OAuthClientMetadata(
            client_name="Callboard",
            software_version=__version__,
            redirect_uris=[callback],
            application_type="native" if callback.host in ("127.0.0.1", "localhost", "[::1]") else "web",
        )
        address = ""

        async def keep(authorization_url: str) -> None:
            nonlocal address
            address = authorization_url
            if oauth.issuer and flow.context.oauth_metadata is None:
                # The SDK would send the client's secret to the MCP server.
                raise SignInError(f"the declared issuer {oauth.issuer} has no metadata")

        flow = OAuthClientProvider(url, metadata, account, keep, lambda: self._ask(address))
        return flow

    async def _run(self, account: Account, probe: httpx2.Request, refusal: httpx2.Response | None) -> bool:
        """Run a flow until it has a token. `refusal` answers its request without a token; None ends the flow there."""
        is_refresh = bool(account.token)
        flow = self._make_flow(account)
        flow.context.oauth_metadata = account.metadata
        flow.context.protected_resource_metadata = account.resource
        # Expired, so that the flow begins with a refresh. Without tokens it has no effect.
        flow.context.token_expiry_time = 1.0
        async with aclosing(flow.async_auth_flow(probe)) as steps:
            step = await anext(steps)
            while step is not probe or "Authorization" not in probe.headers:
                if step is not probe:
                    answer = await self._send(step)
                elif refusal is None:
                    return False
                else:
                    answer, refusal = refusal, None
                step = await steps.asend(answer)
        account.metadata, account.resource = flow.context.oauth_metadata, flow.context.protected_resource_metadata
        if is_refresh and not (await self._load()).token:
            raise SignInError("the data of the user was deleted meanwhile")
        await self._save(account)
        return True

    def _write_demand(self, response: httpx2.Response, account: Account) -> httpx2.Response:
        """Return a refusal that demands the declared scopes, and all granted ones if the server demands one more."""
        scope: str | None = " ".join(self._declaration.oauth.scopes)
        if _is_step_up(response):
            granted = account.tokens.scope if account.tokens else None
            scope = union_scopes(union_scopes(scope, granted), extract_scope_from_www_auth(response))
        demand = response.headers.get("www-authenticate", "Bearer").partition(" ")[2]
        headers = {"www-authenticate": f'Bearer scope="{scope}", {demand}' if scope else f"Bearer {demand}"}
        return httpx2.Response(HTTPStatus.UNAUTHORIZED, headers=headers, request=response.request)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of a flow to an address that the MCP server or its authorization server has named."""
        own, host, content = urlsplit(self._declaration.url), request.url.host, await request.aread()
        if own.scheme == "https" != request.url.scheme:
            raise SignInError(f"its sign-in leads to {host} without encryption")
        # The server must not lead to addresses in the admin's network.
        declared = (own.hostname, urlsplit(self._declaration.oauth.issuer).hostname)
        guard = Guard(AllowList(frozenset(filter(None, declared))))
        headers = {**request.headers, "Accept": "application/json", "Accept-Encoding": "identity"}
        body = bytearray()
        try:
            async with (
                guarded_client(guard) as http,
                http.stream(request.method, str(request.url), headers=headers, content=content) as answer,
            ):
                async for chunk in answer.aiter_raw():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise SignInError(f"its sign-in failed: {host} sent over {MAX_ANSWER_BYTES} bytes")
        except AddressRefused:
            raise SignInError(
                f"its sign-in leads to {host}, which is not on the public web: the admin can name it as `issuer` in "
                "the server's `oauth`"
            ) from None
        except (httpx.HTTPError, ToolError) as error:
            raise SignInError(f"its sign-in failed: {host} cannot be reached ({type(error).__name__})") from None
        found = httpx2.Response(answer.status_code, headers=answer.headers.raw, content=bytes(body), request=request)
        if found.is_error and request.method == "POST" and b"grant_type=refresh_token" not in content:
            raise SignInError(f"its sign-in failed: {host} answered HTTP {found.status_code}{_read_code(found.text)}")
        return found

    async def _ask(self, address: str) -> AuthorizationCodeResult:
        """Ask the user to sign in at the address, and return the code that their browser brings back."""
        context, sign_ins, name = self._context, self._sign_ins, self._declaration.name
        assert context is not None
        assert context.user is not None
        assert sign_ins is not None
        host = check_web_address(address)
        [state] = parse_qs(urlsplit(address).query)["state"]
        await sign_ins.begin(state, context.user, name)
        question = asyncio.ensure_future(
            context.ask(
                f"{name} needs you to sign in. Open this address yourself and do not pass it on: the agents use the "
                f"account that signs in there for you.\n\n{host}",
                title=f"Sign in to {name}",
                url=address,
                # Longer, so that the call ends with the right reason.
                timeout_seconds=SIGN_IN_SECONDS + 5,
            )
        )
        try:
            with context.clock.waiting():
                query = await sign_ins.wait(state, question)
        except TimeoutError:
            raise SignInError(f"nobody signed in within {SIGN_IN_SECONDS:g} s") from None
        if query is None:
            closed = "the question was closed, or the user cannot be asked here"
            raise SignInError("the user declined to sign in" if question.result() is False else closed)
        if "code" not in query:
            raise SignInError(f"{host} refused the sign-in{_read_code(query.get('error', ''))}")
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


def demands_token(response: httpx2.Response) -> bool:
    """Return whether the server demands a token, or one with more scopes."""
    return response.status_code == HTTPStatus.UNAUTHORIZED or _is_step_up(response)


def _is_step_up(response: httpx2.Response) -> bool:
    is_forbidden = response.status_code == HTTPStatus.FORBIDDEN
    return is_forbidden and extract_field_from_www_auth(response, "error") == "insufficient_scope"


def _read_code(text: str) -> str:
    """Return the error code of an authorization server's answer in parentheses, "" if it has none."""
    code = _CODE.search(text)
    return f" ({code[1]})" if code else ""


def _describe(error: Exception) -> str:
    """Return the reason of a failed flow, without the parts of messages that have tokens."""
    if isinstance(error, SignInError):
        return str(error)
    is_clear = isinstance(error, SettingsError | StorageError | ToolError) or type(error) in (
        ValueError,
        OAuthFlowError,
    )
    return f"its sign-in failed: {error if is_clear else type(error).__name__}"
