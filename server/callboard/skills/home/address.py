"""The address of a Home Assistant, with a token of one of its users."""

from dataclasses import dataclass, field
from typing import Self

from pydantic import Field, SecretStr, model_validator

from callboard.redaction import secrets_in_url
from callboard.settings import SkillSettings


@dataclass(frozen=True, slots=True)
class HomeAddress:
    """An address and a long-lived access token."""

    url: str
    token: str = field(repr=False)

    @classmethod
    def read(cls, url: str, token: str) -> Self:
        """Return the address without `/api` and a final slash, which people often add."""
        return cls(url.strip().rstrip("/").removesuffix("/api"), token)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The token, and a password in the address."""
        return (self.token, *secrets_in_url(self.url))


class HomeAssistantSettings(SkillSettings):
    """Home Assistant."""

    home_assistant_url: str | None = Field(default=None, description="Home Assistant's address, for `home`")
    home_assistant_token: SecretStr | None = Field(default=None, description="A long-lived access token of it")

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.home_assistant_url and not self.home_assistant_token:
            raise ValueError("CALLBOARD_HOME_ASSISTANT_URL is set: give its key in CALLBOARD_HOME_ASSISTANT_TOKEN")
        return self

    def address(self) -> tuple[str, str]:
        """Return the address and the token. Raises `NotSetUp`."""
        if self.home_assistant_url is None or self.home_assistant_token is None:
            raise self.not_set_up()
        return self.home_assistant_url, self.home_assistant_token.get_secret_value()
