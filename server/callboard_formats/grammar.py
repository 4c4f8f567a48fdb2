"""The literals that a set of syntaxes searches for in text, and the meanings of each literal."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import regex

from callboard_formats.literals import Literals
from callboard_formats.syntax import END_OF_TURN, END_TOKENS, Syntax, Tags, TextKind

_FENCES = ("```", "~~~")
_END_TOKEN = re.compile(r"<[|｜]\S+[|｜]>|<[A-Z_]+\d+>|\[e~\[")


@dataclass(frozen=True, slots=True, eq=False)
class Grammar:
    """The literals of a set of syntaxes, in lower case.

    Attributes:
        syntaxes: The syntaxes. Other attributes refer to a syntax by its index.
        outside: The literals to search for in text.
        after_call: The literals to search for in text behind a call.
        owners: For each opener of a block, the syntaxes to which it may belong.
        tags: For each opener of a thought, the tags to which it may belong.
        closers: The closers of thoughts that the prompt may have opened.
        results: The beginnings of imagined results.
        turns: The beginnings of imagined turns of the user.
        at_line_start: The syntaxes whose blocks begin only at the beginning of a line.
    """

    syntaxes: tuple[Syntax, ...]
    outside: Literals
    after_call: Literals
    owners: Mapping[str, tuple[int, ...]]
    tags: Mapping[str, tuple[Tags, ...]]
    closers: frozenset[str]
    results: frozenset[str]
    turns: frozenset[str]
    at_line_start: frozenset[int]


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meanings that one literal may have.

    Attributes:
        owners: The indexes of the syntaxes whose block it may begin.
        tags: The tags of the thought that it may open.
        closes: The closer of a thought with which it begins; "" if there is none.
        imagined: It may begin an imagined result.
        is_turn: It begins an imagined turn of the user. All text from there on is dropped.
        at_line_start: It has a meaning only at the beginning of a line.
    """

    owners: tuple[int, ...]
    tags: tuple[Tags, ...]
    closes: str
    imagined: bool
    is_turn: bool
    at_line_start: bool


@lru_cache(maxsize=64)
def build_grammar(syntaxes: tuple[Syntax, ...]) -> Grammar:
    """Return the grammar of these syntaxes. The order of the syntaxes is the order in which they are tried."""
    owners: dict[str, tuple[int, ...]] = {}
    tags: dict[str, tuple[Tags, ...]] = {}
    for place, syntax in enumerate(syntaxes):
        for opener in dict.fromkeys(one.lower() for one in syntax.openers):
            owners[opener] = (*owners.get(opener, ()), place)
        for tag in syntax.reasoning:
            before = tags.get(tag.opener.lower(), ())
            tags[tag.opener.lower()] = before if tag in before else (*before, tag)
    closers = frozenset(tag.closer.lower() for group in tags.values() for tag in group if tag.marks_a_thought)
    # Stop sequences may begin with a line end, but the call before them may have been read with its line end.
    results = frozenset(stop.strip().lower() for one in syntaxes for stop in one.stops if stop.strip())
    turns = frozenset(one for one in results if _is_turn(one))
    at_line_start = frozenset(place for place, one in enumerate(syntaxes) if one.at_line_start_only)
    outside = {*owners, *tags, *closers, *turns, *_FENCES}
    return Grammar(
        syntaxes, Literals(outside), Literals(outside | results), owners, tags, closers, results, turns, at_line_start
    )


def _is_turn(stop: str) -> bool:
    """Return whether this stop sequence is a token that ends a turn, followed by the beginning of the next turn."""
    end = END_OF_TURN.match(stop)
    return end is not None and end.end() < len(stop)


@lru_cache(maxsize=1024)
def find_meaning(grammar: Grammar, found: str) -> Meaning:
    """Return the possible meanings of `found`, the longest literal at its position, in lower case.

    A shorter literal at the beginning of `found` has its meanings as well.
    """
    beginnings = [found[:length] for length in range(len(found), 0, -1)]
    owners = dict.fromkeys(place for one in beginnings for place in grammar.owners.get(one, ()))
    tags = next((grammar.tags[one] for one in beginnings if one in grammar.tags), ())
    closes = next((one for one in beginnings if one in grammar.closers), "")
    imagined = any(one in grammar.results for one in beginnings) or any(
        tag.kind is TextKind.OBSERVATION for tag in tags
    )
    is_turn = any(one in grammar.turns for one in beginnings)
    is_end = END_OF_TURN.fullmatch(found) is not None
    means_more = tags or closes or imagined or is_turn or is_end or found[0] in "`~"
    at_line_start = bool(owners) and owners.keys() <= grammar.at_line_start and not means_more
    return Meaning(tuple(sorted(owners)), tags, closes, imagined, is_turn, at_line_start)


@lru_cache(maxsize=64)
def turn_end_pattern(grammar: Grammar) -> "regex.Pattern[str]":
    """Return the pattern of the tokens that may end a turn."""
    own = {text for one in grammar.syntaxes for text in (*one.stops, *one.markers) if _END_TOKEN.fullmatch(text)}
    return regex.compile("|".join([END_OF_TURN.pattern, *map(regex.escape, sorted(own))]), regex.IGNORECASE)


@lru_cache(maxsize=64)
def result_literals(grammar: Grammar) -> Literals:
    """Return the beginnings of imagined results, without the tokens that only end the turn."""
    ends = turn_end_pattern(grammar)
    return Literals(one for one in grammar.results if not ends.fullmatch(one))


@lru_cache(maxsize=64)
def token_literals(grammar: Grammar) -> Literals:
    """Return the tokens and tags of the syntaxes, which may follow a closing fence in the same line."""
    literals = (*grammar.owners, *(marker for one in grammar.syntaxes for marker in one.markers))
    marks = {one for one in literals if one[0] in "<>" or (one[0] == "[" and len(one) > 1)}
    ends = {tag.closer for group in grammar.tags.values() for tag in group if tag.kind is TextKind.MESSAGE}
    return Literals({*marks, *ends, *grammar.turns, *END_TOKENS})


@lru_cache(maxsize=256)
def closer_literals(grammar: Grammar, tags: tuple[Tags, ...]) -> Literals:
    """Return the literals to search for in a thought of these tags, if any block ends the thought."""
    literals = {tag.closer for tag in tags if tag.closer}
    if any(tag.until_call for tag in tags):
        literals |= {*_FENCES, *grammar.owners, *grammar.tags}
    return Literals(literals)


@lru_cache(maxsize=256)
def thought_literals(grammar: Grammar, tags: tuple[Tags, ...]) -> Literals:
    """Return the literals to search for in a thought: its closers, openers of calls, and tokens that end a turn.

    A message of a channel contains no calls. In a message, fences are searched for instead of openers.
    """
    openers = grammar.owners if all(tag.calls for tag in tags) else ()
    fences = _FENCES if all(tag.kind is TextKind.MESSAGE for tag in tags) else ()
    return Literals({*(tag.closer for tag in tags), *openers, *fences, *END_TOKENS})


@lru_cache(maxsize=64)
def opener_literals(tags: tuple[Tags, ...]) -> Literals:
    """Return the openers of these tags."""
    return Literals({tag.opener for tag in tags})
