"""Reads and writes signed user tokens: JWTs in a header, signed with a secret shared by Open WebUI and this server.

Open WebUI 0.12 sends a token if `FORWARD_USER_INFO_HEADER_JWT_SECRET` is set. It is signed with HS256, valid for five
minutes, and contains `sub`, `name`, `email`, `role`, `iss`, `iat` and `exp`. The pipe makes its own token with the same
secret and adds `groups`.

`jwt` is imported by the functions, because it takes 50 ms with `cryptography`, and most servers have no secret.
"""

import time

from pydantic import ValidationError

from callboard.errors import Unauthorized
from callboard_protocol import User

HEADER = "x-openwebui-user-jwt"
ISSUER = "open-webui"
ALGORITHM = "HS256"
VALID_SECONDS = 300
CLOCKS_DIFFER_SECONDS = 10
"""The tolerated difference between the clocks of two machines."""


def sign_user(user: User, secret: str) -> str:
    """Return a token for a user in the form that the pipe writes."""
    import jwt

    now = int(time.time())
    known = user.model_dump(mode="json", exclude={"id"})
    claims = {**known, "sub": user.id, "iss": ISSUER, "iat": now, "exp": now + VALID_SECONDS}
    return jwt.encode(claims, secret, algorithm=ALGORITHM)


def read_signed_user(token: str, secret: str) -> User:
    """Return the user of a token.

    Only `ALGORITHM` is accepted; the algorithm that the token names is ignored. Raises `Unauthorized` if the token has
    expired or is not signed with the secret.
    """
    import jwt

    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=[ALGORITHM],
            issuer=ISSUER,
            leeway=CLOCKS_DIFFER_SECONDS,
            options={"require": ["sub", "iat", "exp"]},
        )
        return User.model_validate({**claims, "id": claims["sub"]})
    except jwt.ExpiredSignatureError:
        raise Unauthorized(f"The user's token in {HEADER} has expired: compare the clocks of both machines.") from None
    # The error repeats no part of the token and gives no details, which would help to forge one.
    except (jwt.PyJWTError, ValidationError, ValueError):
        raise Unauthorized(
            f"The user's token in {HEADER} is not signed with this server's secret: Open WebUI's "
            "FORWARD_USER_INFO_HEADER_JWT_SECRET and CALLBOARD_OPEN_WEBUI_JWT_SECRET must be the same."
        ) from None
