"""What went wrong with Home Assistant, in words that say who can do what about it."""

from callboard.errors import ToolError, ToolTimeout

NOT_SET_UP = (
    "No Home Assistant is set up here: whoever runs this server must set CALLBOARD_HOME_ASSISTANT_URL and "
    "CALLBOARD_HOME_ASSISTANT_TOKEN."
)
REFUSED = (
    "Home Assistant refused the token (401): set CALLBOARD_HOME_ASSISTANT_TOKEN to a long-lived access token of it, "
    "made in its user profile under Security."
)
STRANGE = (
    "What answers at CALLBOARD_HOME_ASSISTANT_URL is not Home Assistant's API: give the address of Home Assistant "
    "itself, such as http://homeassistant.local:8123."
)


def refusal(status: int) -> ToolError:
    """What an HTTP status other than success means."""
    match status:
        case status if status < 300:
            return ToolError(STRANGE)
        case 401:
            return ToolError(REFUSED)
        case 403:
            return ToolError(
                "Home Assistant does not let this server in (403): it bans an address after too many wrong tokens. "
                "Delete it from ip_bans.yaml there, restart Home Assistant and check CALLBOARD_HOME_ASSISTANT_TOKEN."
            )
        case 400:
            return ToolError(
                "Home Assistant refused the request (400): if CALLBOARD_HOME_ASSISTANT_URL leads through a proxy, name "
                "the proxy in trusted_proxies of Home Assistant's http settings."
            )
        case 404:
            return ToolError(f"{STRANGE} It said 404, not found.")
        case 502 | 503 | 504:
            return ToolError(f"Home Assistant is not ready ({status}): it may be starting. Try again in a minute.")
        case status if 300 <= status < 400:
            # Not followed: the token would go along, to wherever it leads.
            return ToolError(
                f"Home Assistant sends us elsewhere ({status}): set CALLBOARD_HOME_ASSISTANT_URL to its own address "
                "(https://, perhaps)."
            )
        case _:
            return ToolError(f"Home Assistant answered with an error ({status}): look at its log, or try again later.")


def unreachable(error: Exception) -> ToolError:
    """No connection, or one that broke."""
    return ToolError(
        f"Home Assistant cannot be reached ({type(error).__name__}): is it running, and is "
        "CALLBOARD_HOME_ASSISTANT_URL its address?"
    )


def too_slow(seconds: float) -> ToolTimeout:
    """No answer in time."""
    return ToolTimeout(
        f"Home Assistant did not answer within {seconds:g} s: try again later, or see whether it is well."
    )
