"""Users whom Open WebUI vouches for: a token in a header, signed with a secret that it shares with this server.

Open WebUI 0.12 makes one where `FORWARD_USER_INFO_HEADER_JWT_SECRET` is set: HS256, for five minutes, with `sub`,
`name`, `email`, `role`, `iss`, `iat` and `exp`. The pipe makes its own with that secret, and adds `groups`.
"""

import time

import jwt
from pydantic import ValidationError

from callboard.errors import Unauthorized
from callboard_protocol import User

HEADER = "x-openwebui-user-jwt"
ISSUER = "open-webui"
ALGORITHM = "HS256"
NEEDED = ("sub", "iat", "exp")
HOLDS_SECONDS = 300
CLOCKS_DIFFER_SECONDS = 10
"""The seconds by which the clocks of two machines may differ."""


def sign_user(user: User, secret: str) -> str:
    """Return a token for a user, as the pipe makes it, for who has the secret and asks in that user's name."""
    now = int(time.time())
    known = user.model_dump(mode="json", exclude={"id"})
    claims = {**known, "sub": user.id, "iss": ISSUER, "iat": now, "exp": now + HOLDS_SECONDS}
    return jwt.encode(claims, secret, algorithm=ALGORITHM)


def read_signed_user(token: str, secret: str) -> User:
    """Return the user of a token; raises `Unauthorized` for one that is not signed with the secret, or has expired.

    The algorithm is ours to choose: what the token says of it counts for nothing.
    """
    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=[ALGORITHM],
            issuer=ISSUER,
            leeway=CLOCKS_DIFFER_SECONDS,
            options={"require": list(NEEDED)},
        )
        return User.model_validate({**claims, "id": claims["sub"]})
    except jwt.ExpiredSignatureError:
        raise Unauthorized(f"The user's token in {HEADER} has expired: compare the clocks of both machines.") from None
    # Nothing of a token is repeated, and not why it is none.
    except (jwt.PyJWTError, ValidationError, ValueError):
        raise Unauthorized(
            f"The user's token in {HEADER} is not signed with this server's secret: Open WebUI's "
            "FORWARD_USER_INFO_HEADER_JWT_SECRET and CALLBOARD_OPEN_WEBUI_JWT_SECRET must be the same."
        ) from None
