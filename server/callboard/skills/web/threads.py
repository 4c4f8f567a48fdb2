"""Where blocking searches wait: threads of their own."""

from callboard.threads import Threads

SEARCHES = Threads("search", 8)
