"""How much a turn may change in a house, by whatever tool it does so."""

from callboard.errors import ToolLimit
from callboard.tools import ToolContext

MAX_CHANGES_PER_TURN = 3
"""Over all calls of all tools that reach the house: a misunderstanding stays small."""

_QUOTA = "home changes"


def take_changes(context: ToolContext, number: int) -> None:
    """Take so many of the turn's changes. Raises `ToolLimit` where they are more than are left, and takes none."""
    if not context.quotas.take(_QUOTA, number, MAX_CHANGES_PER_TURN):
        raise ToolLimit(
            f"Not done: a turn may make {MAX_CHANGES_PER_TURN} changes in the house, and with these it would be more. "
            "Tell the user what was changed and ask whether to go on."
        )


def correct_changes(context: ToolContext, taken: int, made: int) -> None:
    """Count the changes that were made in the place of those that were taken for them."""
    context.quotas.correct(_QUOTA, made - taken)
