"""The inspector: web pages at `/inspect` about runs, their tool calls, and the requests that models were sent.

It reads the store, the runs, and the `RunWatch`. It changes something only when a person presses a button: Stop,
Forget, or Send in "Try it".
"""

from callboard._inspect.inspector import Inspector
from callboard._inspect.watch import RunWatch

__all__ = ["Inspector", "RunWatch"]
