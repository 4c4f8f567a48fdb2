"""The tool loop: ask the model, run its calls, tell it the results, ask again.

Above: agents. Below: calls, formats, tools, models. Knows neither the format that the model
speaks nor anything of storage.

An agent is declared with `context` alone; `tool_loop`, which imports every format of calls, runs it.
"""

from callboard._loop.context import OnOwnerLoss, RunContext, TurnContext, check_on_owner_loss

__all__ = ["OnOwnerLoss", "RunContext", "TurnContext", "check_on_owner_loss"]
