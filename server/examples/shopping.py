"""A skill that keeps a shopping list for each user, and an agent with this skill."""

from collections import defaultdict

from callboard import Agent, Skill, ToolContext, ToolError, register, tool
from callboard.skills import Clock

MOST_OF_ONE_ITEM = 20
_lists: dict[str, list[str]] = defaultdict(list)


@tool(read_only=True)
def read_list(context: ToolContext) -> list[str]:
    """Return the items on the user's shopping list."""
    return _lists[context.user_id]


@tool
def add_to_list(context: ToolContext, item: str, amount: int = 1) -> str:
    """Add an item to the user's shopping list.

    Args:
        item: The item's name in the shop.
        amount: The number of pieces, 1 to 20.
    """
    if not 1 <= amount <= MOST_OF_ONE_ITEM:
        raise ToolError(f"Put 1 to {MOST_OF_ONE_ITEM} of an item on the list, not {amount}.")
    _lists[context.user_id].append(f"{amount} × {item}")
    return f"{amount} × {item} is on the list."


@tool(requires_confirmation=True)
def clear_list(context: ToolContext) -> str:
    """Remove all items from the user's shopping list, once the user has agreed."""
    _lists.pop(context.user_id, None)
    return "The list is empty."


SHOPPING = Skill(
    "shopping",
    "Keeps the user's shopping list.",
    "You keep a shopping list. Read it before you say what is on it.",
    tools=(read_list, add_to_list, clear_list),
    max_tool_calls=10,
)
register(
    Agent("shopper", "Keeps your shopping list.", (SHOPPING, Clock()), "You help with the shopping.", name="Shopper")
)
