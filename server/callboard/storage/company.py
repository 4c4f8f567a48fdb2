"""Whether a server is alone: as it finds when it renews its lease, and as it found a while before that."""

import time

ABSENT_LEASES = 3
"""The leases without another server after which one takes itself for alone.

Others may be there that cannot renew theirs just now, or are being started anew.
"""


class Company:
    """The other servers of a store, as one sees them that renews a lease of `lease_seconds`."""

    def __init__(self, lease_seconds: float) -> None:
        self.is_missing = True
        """True where no other server was there when it last looked, nor a while before that."""
        self._absent_seconds = ABSENT_LEASES * lease_seconds
        self._missed_from = 0.0

    def note(self, *, are_others_there: bool, now: float | None = None) -> None:
        """Take note of what the server found: `now`, in seconds of the monotonic clock, or at this moment."""
        # By looks, and not by the clock: who was stopped meanwhile has not looked.
        now = time.monotonic() if now is None else now
        if are_others_there:
            self._missed_from = now + self._absent_seconds
        self.is_missing = now >= self._missed_from
