"""`callboard pipe`: prints the files to paste into Open WebUI."""

import argparse
import sys

from callboard._bundled_files import find_bundled_file


def run(options: argparse.Namespace) -> int:
    """Print the pipe, or the function for events, byte for byte."""
    name = "callboard_events.py" if options.events else "callboard_pipe.py"
    sys.stdout.buffer.write(find_bundled_file(f"pipe/{name}").read_bytes())
    sys.stdout.buffer.flush()
    return 0
