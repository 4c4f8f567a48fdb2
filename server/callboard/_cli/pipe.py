"""`callboard pipe`: prints the files to paste into Open WebUI."""

import argparse
import sys

from callboard._bundled_files import find_bundled_file


def run(options: argparse.Namespace) -> int:
    """Print the pipe, or one of the two other functions, byte for byte."""
    name = f"callboard_{'events' if options.events else 'filter' if options.filter else 'pipe'}.py"
    sys.stdout.buffer.write(find_bundled_file(f"pipe/{name}").read_bytes())
    sys.stdout.buffer.flush()
    return 0
