"""The caller of a request, and the user whom the caller is bound to.

A caller with a `user_id` speaks for that user alone. A request that names no user is this user's; a request that names
another one is refused. It is not answered for the caller's user: a service that sends Ada's question with Bob's token
would store her words in his chats and never notice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from pydantic import ValidationError
from starlette.requests import HTTPConnection
from starlette.types import Scope

from callboard.errors import UserRefused
from callboard_protocol import User

SCOPE_KEY = "callboard.principal"

BOUND_PATHS = ("/v1/", "/skills/")
"""The routes whose `user_id` in the query says for whom a client asks."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller who was recognised. Routes read it as `request.scope["callboard.principal"]`.

    `name` is what logs and the audit call the caller. `user_id`: the one user for whom the caller may ask; None for a
    service that asks for many users and is believed. `roles`: the first one is the `role` of that user (`user` if
    there is none), the others are the user's `groups`; tools and `CALLBOARD_AGENT_ACCESS` read them, and what a request
    says of role, groups, name and email does not count. Raises `ValueError` for a `user_id` that no user can have, the
    empty one too: it would be nobody's, whose chats any caller sees.
    """

    name: str
    user_id: str | None = None
    roles: Sequence[str] = ()
    user: User | None = field(init=False, repr=False, default=None)
    """The user whom tools see, None without `user_id`."""

    def __post_init__(self) -> None:
        if isinstance(self.roles, str):
            raise TypeError(f"Principal({self.name!r}) needs its roles as a sequence: roles=({self.roles!r},).")
        object.__setattr__(self, "roles", tuple(self.roles))
        if self.user_id is None:
            return
        role = self.roles[0] if self.roles else "user"
        try:
            user = User(id=self.user_id, name=self.name, role=role, groups=tuple(self.roles[1:]))
        except ValidationError as error:
            raise ValueError(
                f"Principal({self.name!r}) cannot have user_id={self.user_id!r}: give 1 to 255 printable characters, "
                "or return None from authenticate for a caller who may not use the server."
            ) from error
        object.__setattr__(self, "user", user)


def principal_of(connection: HTTPConnection) -> Principal | None:
    """Return the caller, None if nobody is asked who they are."""
    principal = connection.scope.get(SCOPE_KEY)
    return principal if isinstance(principal, Principal) else None


def caller_of(connection: HTTPConnection) -> str | None:
    """Return the name of the caller's key, None where nobody is asked for one."""
    principal = principal_of(connection)
    return principal.name if principal else None


def find_bound_user(connection: HTTPConnection, *named: str | None) -> User | None:
    """Return the user whom the caller is bound to; `named` are the users whom the request names.

    Raises `UserRefused` if the request names another user.
    """
    principal = principal_of(connection)
    if principal is None or principal.user is None:
        return None
    _refuse_others(principal.user, named)
    return principal.user


def bind_query(scope: Scope, path: str, principal: Principal) -> Scope:
    """Return the scope of a request with the caller's `user_id` in its query, where the caller is bound to a user.

    `path` is the route's. Raises `UserRefused` if the query names another user.
    """
    if principal.user is None or not path.startswith(BOUND_PATHS):
        return scope
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    _refuse_others(principal.user, [value for name, value in given if name == "user_id"])
    bound = [*(pair for pair in given if pair[0] != "user_id"), ("user_id", principal.user.id)]
    return {**scope, "query_string": urlencode(bound).encode()}


def _refuse_others(user: User, named: Sequence[str | None]) -> None:
    for other in named:
        if other and other != user.id:
            raise UserRefused(
                f"You are signed in as the user {user.id!r}, and the request names {other!r}: leave the user out, or "
                "sign in as the one whom you ask for."
            )
