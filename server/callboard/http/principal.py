"""The caller of a request, and the user whom the caller is bound to.

A caller with a `user_id` may act for that user only. A request that names no user counts as a request of this user. A
request that names another user is refused rather than answered for the caller's user: otherwise a service that sends
Ada's question with Bob's token would store her words in his chats without noticing.
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
"""Prefixes of the routes whose `user_id` in the query names the user of the request."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller. Routes read it as `request.scope["callboard.principal"]`.

    `name`: the caller's name in logs. `user_id`: the only user for whom the caller may ask; None for a
    service that asks for many users and is trusted to name them. `roles`: the first one is the `role` of that user
    (`user` if there is none), the others are the user's `groups`. Tools and `CALLBOARD_AGENT_ACCESS` read them; role,
    groups, name and email in the request are then ignored. Raises `ValueError` for an invalid `user_id`. An empty one
    is invalid because chats without a user are visible to every caller.
    """

    name: str
    user_id: str | None = None
    roles: Sequence[str] = ()
    user: User | None = field(init=False, repr=False, default=None)
    """The user that tools see; None without `user_id`."""

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


def get_principal(connection: HTTPConnection) -> Principal | None:
    """Return the caller of the request; None if the server has no authentication."""
    principal = connection.scope.get(SCOPE_KEY)
    return principal if isinstance(principal, Principal) else None


def get_caller_name(connection: HTTPConnection) -> str | None:
    """Return the caller's name; None if the server has no authentication."""
    principal = get_principal(connection)
    return principal.name if principal else None


def find_bound_user(connection: HTTPConnection, *named: str | None) -> User | None:
    """Return the user to whom the caller is bound, if any; `named` are the users that the request names.

    Raises `UserRefused` if the request names another user.
    """
    principal = get_principal(connection)
    if principal is None or principal.user is None:
        return None
    _refuse_others(principal.user, named)
    return principal.user


def bind_query(scope: Scope, path: str, principal: Principal) -> Scope:
    """Return the scope with the caller's `user_id` in the query, if the caller is bound to a user.

    `path` is the path of the route. Raises `UserRefused` if the query names another user.
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
                f"sign in as {other!r}."
            )
