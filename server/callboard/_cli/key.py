"""`callboard key`: prints the key that clients must send, and makes, lists and removes named keys."""

import argparse

from callboard._logging import set_up_logging
from callboard._named_keys import add_named_key, read_named_keys, remove_named_key
from callboard.settings import make_server_key, read_keys_file


def run(options: argparse.Namespace) -> int:
    """Print this server's key, and make it first if there is none. With an option, add, remove or list named keys."""
    set_up_logging("warning")
    if options.add is not None:
        print(add_named_key(read_keys_file(), options.add))
    elif options.remove is not None:
        remove_named_key(read_keys_file(), options.remove)
    elif options.list:
        for named in read_named_keys(read_keys_file()):
            print(named.name)
    else:
        key = make_server_key()
        if not options.quiet:
            print(key)
    return 0
