"""A visit: who looks, at whose chats, with which form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from starlette.requests import Request

from callboard._inspect.signing_in import Session
from callboard.storage import ANY_USER

SCOPE_KEY = "callboard.visit"


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody at a page: where the pages are (`base`), whose chats alone are shown (`user`), what a form says."""

    base: str
    session: Session | None = None
    user: str | None = None
    can_sign_out: bool = False
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def sees(self) -> object:
        """The user whose chats the store is to show; who names none, as an admin does, sees all."""
        return ANY_USER if self.user is None else self.user

    @property
    def caller(self) -> str | None:
        """The name of the key that they signed in with."""
        return self.session.caller if self.session else None

    @property
    def token(self) -> str:
        """The token of this visit's forms."""
        return self.session.token if self.session else ""

    def can_see(self, user_id: str | None) -> bool:
        """Return whether what is that user's is shown."""
        return self.user is None or self.user == user_id

    def link(self, *steps: str, **query: object) -> str:
        """Return the address of a page: the steps of its path, each escaped, and what of the query is not empty.

        Every link stays with the user whose chats are shown.
        """
        path = "/".join(quote(step, safe="") for step in steps)
        asked = {name: value for name, value in {"user": self.user, **query}.items() if value not in (None, "")}
        return f"{self.base}/{path}{'?' if asked else ''}{urlencode(asked)}"


def read_visit(request: Request) -> Visit:
    """Return the visit that the door let in."""
    visit = request.scope[SCOPE_KEY]
    assert isinstance(visit, Visit)
    return visit
