"""The user whom a request is for: the caller's own, the one whom Open WebUI signs for, or the one that it names."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from callboard._http.principal import find_bound_user
from callboard._openwebui.signed_users import HEADER, read_signed_user
from callboard.errors import Unauthorized
from callboard_protocol import User


@dataclass(frozen=True, slots=True)
class Vouching:
    """The secret that users are signed with, None where whoever has a key is believed."""

    secret: str | None = None

    @property
    def is_asked(self) -> bool:
        """Return whether a user counts only with a signature."""
        return self.secret is not None

    def find_user(self, request: HTTPConnection) -> User | None:
        """Return the user for whom the request is known to be: the caller's own, or the one who is signed for.

        None if neither is known. Raises `Unauthorized` for a signature that is none.
        """
        if bound := find_bound_user(request):
            return bound
        tokens = request.headers.getlist(HEADER)
        if self.secret is None or not tokens:
            return None
        if len(tokens) > 1:
            raise Unauthorized(f"There are {len(tokens)} headers {HEADER}: a request is one user's.")
        return read_signed_user(tokens[0].strip(), self.secret)

    def check(self, user_id: str | None, request: HTTPConnection) -> User | None:
        """Return the user for whom the request counts, None if it is the one of `user_id`, or nobody's.

        `user_id` is the user whom the request names. The caller's own user counts in any case; the one who is signed
        for counts if the request names them. Raises `UserRefused` if the caller's own is another, and `Unauthorized`
        if another is signed for, or none.
        """
        if bound := find_bound_user(request, user_id):
            return bound
        signed = self.find_user(request)
        if self.secret is None or user_id is None:
            return None
        if signed is None:
            raise Unauthorized(
                f"The request names a user and nobody vouches for them: send {HEADER}, which Open WebUI makes where "
                "its FORWARD_USER_INFO_HEADER_JWT_SECRET is set."
            )
        if signed.id != user_id:
            raise Unauthorized("The request names another user than the one who is signed for.")
        return signed
