"""The inspector: web pages at `/inspect` about runs, their tool calls, and the requests to models.

It reads the store, the runs, and the `RunWatch`. It changes something only when a person presses a button, for example
Stop, Forget, Allow or Revoke.
"""

from callboard._inspect.inspector import Inspector
from callboard._inspect.watch import RunWatch

__all__ = ["Inspector", "RunWatch"]
