"""Where Home Assistant is, as the settings say it."""

from callboard.settings import Settings


def whereabouts(settings: Settings) -> tuple[str, str] | None:
    """Return the address of the settings' Home Assistant and its token; None where they name none."""
    if settings.home_assistant_url is None or settings.home_assistant_token is None:
        return None
    address = settings.home_assistant_url.strip().rstrip("/").removesuffix("/api")
    return address, settings.home_assistant_token.get_secret_value()
