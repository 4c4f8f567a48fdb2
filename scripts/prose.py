"""Count idioms of an unclear style in docstrings and comments, per 10,000 words and per package.

A thermometer and no gate: it cannot tell a good sentence from a bad one, and does not read names and messages. For
comparison, the sum "five" of other packages: Starlette 3, httpx 11, the MCP SDK 15, pydantic-ai 39.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

FIVE = {
    "what": r"(?:^|[\s(])[Ww]hat\b",
    "where": r"\b[Ww]here\b(?! is the)",
    "that of": r"\b(?:[Tt]hat|[Tt]hose) (?:of|that|in|which|who)\b",
    "nobody": r"\b(?:[Nn]obody|[Ss]omebody|[Aa]nybody)\b",
    "told": r"\b(?:[Tt]old|[Tt]ells?)\b",
}
MORE = {
    "Else …": r"(?:^|[.:;] )Else\b|: else\b",
    "of which": r"\b(?:of|by|to|from|with|in|on) (?:which|whom)\b",
    "whoever": r"\b(?:[Ww]ho|[Ww]hat|[Ww]hich|[Ww]hen|[Ww]here|[Hh]ow)ever\b",
    "but for": r"\bbut for\b",
    ", for it": r"[,;] for (?:it|they|there|its|the|a|what|who|some|that|he)\b",
    "there is": r"\b[Tt]here (?:is|are|was|were|may be)\b|\b(?:is|are) there\b",
    "meanwhile": r"\b[Mm]eanwhile\b|\b[Bb]y (?:then|now)\b",
    "give back": r"\b(?:lets?|takes?|taken|took|gives?|given|hand(?:s|ed)?|parts?) (?:go|back|over|from)\b",
    "one": r"\bones?\b",
}
ROOT = Path(__file__).parent.parent
FOLDERS = ("pipe", "scripts", "server", "shared", "docs")
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/prose", description=__doc__)
    parser.add_argument("--all", action="store_true", help="count nine more idioms")
    parser.add_argument("root", nargs="?", type=Path, help="another folder of Python files; without it this project")
    given = parser.parse_args()
    root = given.root or ROOT
    folders = [given.root] if given.root else [ROOT / name for name in FOLDERS]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md")]
    if not given.root:
        files += [ROOT / name for name in PAGES]
    print(make_table(measure(root, files), FIVE | MORE if given.all else FIVE))


def measure(root: Path, files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the prose of the files by package: their first three folders below the root."""
    found: dict[str, list[str]] = {}
    for path in sorted(files):
        text = path.read_text(encoding="utf-8")
        package = "/".join(path.relative_to(root).parts[:-1][:3]) or "."
        found.setdefault(package, []).extend(read_prose(text) if path.suffix == ".py" else [text])
    return found


def read_prose(source: str) -> list[str]:
    """Return the docstrings, including those of attributes, and the comments of Python source."""
    statements = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    docstrings = [node.value for node in statements if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return docstrings + [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]


def make_table(packages: Mapping[str, list[str]], idioms: Mapping[str, str]) -> str:
    """Return a row for each package, the one with the most idioms first, and a row for all."""
    counted = {name: count(texts, idioms) for name, texts in packages.items()}
    rows = sorted(((rate(counts, *FIVE), name, counts) for name, counts in counted.items()), reverse=True)
    total = sum(counted.values(), Counter[str]())
    width = max(map(len, packages))
    lines = [f"{'package':{width}}   words{''.join(f'{name:>11}' for name in idioms)}    five"]
    for five, name, counts in (*rows, (rate(total, *FIVE), "all", total)):
        rates = "".join(f"{rate(counts, idiom):11.1f}" for idiom in idioms)
        lines.append(f"{name:{width}} {counts['']:7}{rates}{five:8.1f}")
    return "\n".join(lines)


def count(texts: Iterable[str], idioms: Mapping[str, str]) -> Counter[str]:
    """Return how often each idiom occurs, and the number of words under the empty name."""
    counts = Counter[str]()
    for text in (" ".join(text.split()) for text in texts):
        counts[""] += len(text.split())
        counts.update({name: len(re.findall(expression, text)) for name, expression in idioms.items()})
    return counts


def rate(counts: Mapping[str, int], *idioms: str) -> float:
    return 10_000 * sum(counts[idiom] for idiom in idioms) / max(1, counts[""])


if __name__ == "__main__":
    main()
