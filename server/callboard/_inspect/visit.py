"""The facts about a request to a page: its session, the user whose chats are shown, and its form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.requests import Request

from callboard._inspect.signing_in import Session
from callboard.errors import Unauthorized
from callboard.storage.values import ANY_USER

SCOPE_KEY = "callboard.visit"


@dataclass(frozen=True, slots=True)
class Visit:
    """The facts about a request to a page.

    Attributes:
        base: The path of the inspector.
        user: The user whose data is shown; None for all users.
        can_sign_out: The server has keys, so the page has a sign-out button.
        users_sign: Open WebUI signs for its users, so only they may decide and change what is theirs.
        form: The fields of a posted form.
    """

    base: str
    session: Session | None = None
    user: str | None = None
    can_sign_out: bool = False
    users_sign: bool = False
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def user_filter(self) -> object:
        """The user for queries to the store: `user`, or `ANY_USER` for all users."""
        return ANY_USER if self.user is None else self.user

    @property
    def caller(self) -> str:
        """The name in logs: `inspector`, followed by the name of the key that was used to sign in."""
        return f"inspector: {self.session.caller}" if self.session and self.session.caller else "inspector"

    @property
    def token(self) -> str:
        """The token for the forms of this session; "" without a session."""
        return self.session.token if self.session else ""

    def can_see(self, user_id: str | None) -> bool:
        """Return whether this user's data may be shown."""
        return self.user is None or self.user == user_id

    def may_act_for(self, user_id: str | None) -> bool:
        """Return whether the pages may answer questions and change data of this user; None stands for no user."""
        return user_id is None or not self.users_sign

    def check_may_act_for(self, user_id: str | None) -> None:
        """Raise `Unauthorized` if only the user may do it, as in the API, which then needs the user's signature."""
        if not self.may_act_for(user_id):
            raise Unauthorized(
                "only the user can do this, because Open WebUI signs for its users (CALLBOARD_OPEN_WEBUI_JWT_SECRET)"
            )

    def link(self, step: str = "", **query: object) -> str:
        """Return the URL of a page from its path and the query parameters that are not empty.

        The query also has the `user` of this visit.
        """
        asked = {name: value for name, value in {"user": self.user, **query}.items() if value not in (None, "")}
        return f"{self.base}/{step}{'?' if asked else ''}{urlencode(asked)}"


def read_visit(request: Request) -> Visit:
    """Return the visit that the access control has stored in the request."""
    visit = request.scope[SCOPE_KEY]
    assert isinstance(visit, Visit)
    return visit
