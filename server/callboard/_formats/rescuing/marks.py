"""The openers of the calls that an answer may end in, and what may stand around those: fences, end-of-turn tokens."""

import re

from callboard_formats.formats import SYNTAXES
from callboard_formats.literals import Literals
from callboard_formats.syntax import END_TOKENS

TURN_ENDS = Literals((*END_TOKENS, "<|call|>", "<|user|>", "<eos>"))
"""Literals that a model may write behind its last call without going on."""

MAX_FENCE_LINE_CHARS = 40

FENCE = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+[\w.+-]*+[ \t]*+\r?\n")
HALF_FENCE = re.compile(r"(?:`+|~+)[ \t]*+[\w.+-]*+[ \t]*+\r?\Z")
FENCE_END = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+(?=[\r\n]|\Z)")
HALF_FENCE_END = re.compile(r"(?:`+|~+)\Z")


_EVERY = tuple(dict.fromkeys(opener for one in SYNTAXES for opener in one.openers))

# ReAct's markers of a list item or a quote would make the call one.
OPENERS = Literals(opener for opener in _EVERY if not opener.startswith(("- ", "> ")))
"""The literals that a block of calls may begin with."""

MARKERS = Literals(opener for opener in _EVERY if opener[0] in "<[" and len(opener) > 1)
"""The openers that begin with a bracket, as no word does: text that holds one speaks of calls."""
