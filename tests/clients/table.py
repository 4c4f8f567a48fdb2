"""Which client makes one run of a question in which shape, for the docs: `python -m tests.clients.table`.

`test_compatibility` plays every cell; there is none that is not as it should be.
"""

from tests.clients.columns import CLIENTS, SHAPES


def table() -> str:
    """A Markdown table: a row a shape, a column a client."""
    lines = [
        "| " + " | ".join(["shape", *(client.name for client in CLIENTS)]) + " |",
        "| --- |" + " :-: |" * len(CLIENTS),
    ]
    lines += ["| " + " | ".join([shape.name, *("✓" for _ in CLIENTS)]) + " |" for shape in SHAPES]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
