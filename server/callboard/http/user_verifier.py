"""Finds the user of a request: the caller's own user, the user that Open WebUI has signed, or the named user."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from callboard.errors import Unauthorized
from callboard.http.principal import find_bound_user
from callboard.openwebui.signed_users import HEADER, read_signed_user
from callboard_protocol import User


@dataclass(frozen=True, slots=True)
class UserVerifier:
    """Checks the user of a request.

    `secret`: with which Open WebUI signs its users; None if every caller is trusted to name users.
    """

    secret: str | None = None

    def __post_init__(self) -> None:
        if self.secret is not None:
            import jwt  # noqa: F401 - for `read_signed_user`: a server imports nothing while it serves

    @property
    def is_required(self) -> bool:
        """True if a request may name a user only with a signature."""
        return self.secret is not None

    def find_verified_user(self, request: HTTPConnection) -> User | None:
        """Return the user to whom the caller is bound, or the user of the request's signature; None without both.

        Raises `Unauthorized` if the signature is invalid.
        """
        if bound := find_bound_user(request):
            return bound
        tokens = request.headers.getlist(HEADER)
        if self.secret is None or not tokens:
            return None
        if len(tokens) > 1:
            raise Unauthorized(f"There are {len(tokens)} headers {HEADER}: send one, because a request has one user.")
        return read_signed_user(tokens[0].strip(), self.secret)

    def verify(self, user_id: str | None, request: HTTPConnection) -> User | None:
        """Return the verified user of a request that names `user_id`; None if the named user is accepted as given.

        If the caller is bound to a user, the request counts for that user. Raises `UserRefused` if the request names
        another one. If signatures are required and the request names a user, raises `Unauthorized` unless that user is
        signed.
        """
        bound = find_bound_user(request, user_id)
        if bound or self.secret is None:
            return bound
        signed = self.find_verified_user(request)
        if user_id is None:
            return None
        if signed is None:
            raise Unauthorized(
                f"The request names a user without a signature: send {HEADER}, which Open WebUI adds if its "
                "FORWARD_USER_INFO_HEADER_JWT_SECRET is set."
            )
        if signed.id != user_id:
            raise Unauthorized("The request names another user than its signature.")
        return signed
