"""Removes secrets from logs, events, the database and requests to models.

A `Redaction` has a set of secrets, which may grow, and replaces them in texts. The server has one with the secrets of
its settings and of MCP servers. Each run has another with the secrets that its tools named; in the tasks of a run it is
`current_redaction`, for the log.

A secret is found in plain text, escaped for JSON, Python or HTML, encoded for a URL, and at any position in base64 of
either alphabet. It is not found if it was changed in another way, for example in hex or compressed.

Imports nothing of Callboard.
"""

import asyncio
import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

MASK = "[secret]"
MIN_SECRET_CHARS = 6
"""Shorter values occur in ordinary words."""

MIN_WORD_CHARS = 12
"""A shorter value of letters of one case, or of digits, may be a word or a number."""

MIN_INSIDE_CHARS = 8
"""A shorter secret is not replaced inside a word: `1ndex` stays in `1ndexes`."""

LARGE_CHARS = 200_000
"""Texts of this length are searched in a thread, because a million characters take about ten milliseconds."""

SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential|cookie", re.IGNORECASE)
"""Matches names of headers, variables and parameters whose value is a secret."""

# A short secret must be a separate word. An escape before it, such as `%3D` or `\n`, ends with a letter or a digit, but
# is no part of a word.
_APART_BEFORE = r"(?:(?<![^\W_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[abfnrtv]))"
_APART_AFTER = r"(?![^\W_])"
_CONTEXT_CHARS = 3
"""The number of characters before a text that `_APART_BEFORE` looks at."""

_HEX_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_BASE64_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_URL_SAFE = str.maketrans("+/", "-_")
# The number of base64 characters at the start of a secret that depend on the bytes before it, by the number of these
# bytes.
_CHARS_OF_NEIGHBOUR = (0, 2, 3)


class Redaction:
    """A set of secrets, which it replaces in texts, values and streams.

    `above` is another redaction whose secrets are replaced too, including secrets that it gets later. A value that is
    shorter than `MIN_SECRET_CHARS`, or looks like a word or a number, is not replaced, because it occurs in ordinary
    sentences.
    """

    def __init__(self, secrets: Iterable[str] = (), above: "Redaction | None" = None) -> None:
        self._above = above
        self._own: set[str] = set()
        self._search = _make_search(frozenset())
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Replace these values from now on."""
        self._own.update(secret for secret in secrets if is_secret(secret))

    def __call__(self, text: str) -> str:
        """Return `text` with `MASK` instead of each secret."""
        search = self._refresh()
        # Nearly every text has no secret, and this is the fastest check.
        if not any(form in text for form in search.forms):
            return text
        return search.pattern.sub(MASK, text)

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets in texts, keys and numbers; the same object if there are none.

        Objects of other types are not changed. A value that is nested too deeply is searched as JSON text, which is
        returned if it has a secret.
        """
        if not self._refresh().forms:
            return value
        try:
            return self._value(value)
        except RecursionError:
            return self._deep_value(value)

    async def large(self, value: Any) -> Any:
        """Return `value(…)`, in a thread if the value is large."""
        if _count_chars(value) < LARGE_CHARS:
            return self.value(value)
        return await asyncio.to_thread(self.value, value)

    def stream(self) -> "RedactedStream":
        """Return a redactor for a text that arrives in pieces."""
        return RedactedStream(self)

    def _data_url(self, url: str, content_begins: int) -> str:
        """Return a `data:` URL without secrets in its content, which is decoded to find every form of them."""
        try:
            content = base64.b64decode(url[content_begins:]).decode("utf-8", "surrogateescape")
        except ValueError:
            return self(url)
        public = self(content)
        if public == content:
            return self(url)
        encoded = base64.b64encode(public.encode("utf-8", "surrogateescape"))
        return self(url[:content_begins]) + encoded.decode()

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                data_url = _BASE64_URL.match(value)
                return self._data_url(value, data_url.end()) if data_url else self(value)
            case dict():
                pairs = {self._value(key): self._value(one) for key, one in value.items()}
                is_same = all(key in pairs and pairs[key] is one for key, one in value.items())
                return value if is_same else pairs
            case list() | tuple() if type(value) in (list, tuple):
                members = [self._value(one) for one in value]
                is_same = all(new is old for new, old in zip(members, value, strict=True))
                return value if is_same else type(value)(members)
            case int() | float() if not isinstance(value, bool):
                return MASK if str(value) in self._search.known else value
            case _:
                return value

    def _deep_value(self, value: Any) -> Any:
        try:
            text = json.dumps(value)
        except (RecursionError, ValueError, TypeError):
            return "[too deep to be searched for secrets]"
        public = self(text)
        return value if public == text else public

    def _secrets(self) -> frozenset[str]:
        return frozenset(self._own) if self._above is None else self._above._secrets() | self._own

    def _refresh(self) -> "_Search":
        """Return the search for all secrets that are known now; also called by threads."""
        known = self._secrets()
        search = self._search
        if known != search.known:
            search = self._search = _make_search(known)
        return search


@dataclass(frozen=True, slots=True)
class _Search:
    """Finds the secrets `known` in texts, in all their forms.

    `short` are the forms that are replaced as separate words only. `by_first_char` has all forms by their first
    character, which `first_char` matches. `longest` is the length of the longest form.
    """

    known: frozenset[str]
    forms: tuple[str, ...]
    pattern: re.Pattern[str]
    short: frozenset[str]
    by_first_char: Mapping[str, Sequence[str]]
    first_char: re.Pattern[str]
    longest: int

    def may_begin_at(self, place: int, text: str) -> bool:
        """Return whether the end of `text` from `place` on may be the beginning of a secret, or of a longer word."""
        end = text[place:]
        return end in self.short or any(form != end and form.startswith(end) for form in self.by_first_char[end[0]])


# Runs without secrets of their own share the search of their server.
@lru_cache(maxsize=64)
def _make_search(known: frozenset[str]) -> _Search:
    # The longest first, because a secret may begin with another.
    forms = tuple(sorted({form for secret in known for form in _forms(secret)}, key=len, reverse=True))
    short = {form for secret in known if len(secret) < MIN_INSIDE_CHARS for form in _written_forms(secret)}
    patterns = (_match_separate_word(form) if form in short else re.escape(form) for form in forms)
    by_first_char: dict[str, list[str]] = {}
    for form in forms:
        by_first_char.setdefault(form[0], []).append(form)
    return _Search(
        known,
        forms,
        re.compile("|".join(patterns) or r"(?!)"),
        frozenset(short),
        by_first_char,
        re.compile("|".join(map(re.escape, by_first_char)) or r"(?!)"),
        max(map(len, forms), default=0),
    )


class RedactedStream:
    """Redacts a text in pieces, and holds back an end that may begin a secret."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._before = ""
        self._held = ""

    def feed(self, piece: str) -> str:
        """Add a piece; return the redacted text that is complete now."""
        return self._redact(piece)

    def flush(self) -> str:
        """Return the redacted rest at the end of the text."""
        return self._redact("", is_last=True)

    def _redact(self, piece: str, *, is_last: bool = False) -> str:
        search = self._redaction._refresh()
        text = self._before + self._held + piece
        done: list[str] = []
        start = len(self._before)
        for match in search.pattern.finditer(text, start):
            # The match may begin a longer secret, or a word.
            if not is_last and search.may_begin_at(match.start(), text):
                break
            done += [text[start : match.start()], MASK]
            start = match.end()
        begins = search.first_char.finditer(text, max(start, len(text) - search.longest))
        unfinished = (begin.start() for begin in begins if search.may_begin_at(begin.start(), text))
        cut = len(text) if is_last else next(unfinished, len(text))
        self._before, self._held = text[max(0, cut - _CONTEXT_CHARS) : cut], text[cut:]
        return "".join([*done, text[start:cut]])


current_redaction: ContextVar[Redaction | None] = ContextVar("callboard_redaction", default=None)
"""The redaction of the current task's run, for the log."""


def is_secret(value: str) -> bool:
    """Return whether a value can be replaced in texts: it is long enough, and does not look like a word or a number."""
    is_like_word = value.isalpha() and (value.islower() or value.isupper() or value.istitle())
    if len(value) < MIN_WORD_CHARS and (is_like_word or (value.isdigit() and len(value) < MIN_SECRET_CHARS + 2)):
        return False
    return len(value.strip()) >= MIN_SECRET_CHARS


def hide_key(text: str, key: str) -> str:
    """Return `text` with `…` instead of a key of any length; a short key is replaced only as a separate word."""
    if not key:
        return text
    pattern = re.escape(key) if len(key) >= MIN_INSIDE_CHARS else _match_separate_word(key)
    return re.sub(pattern, "…", text)


def _match_separate_word(form: str) -> str:
    return f"{_APART_BEFORE}{re.escape(form)}{_APART_AFTER}"


def secrets_in_url(url: str) -> tuple[str, ...]:
    """Return the credentials in a URL, encoded and decoded, and the values of its secret parameters.

    A password that is too short to be replaced by itself is replaced together with its name: `name:password@`.
    """
    try:
        parts = urlsplit(url)
        name = parts.username or ""
        password = parts.password or ""
        query = parse_qsl(parts.query)
    except ValueError:
        return ()
    found = [password, unquote(password)]
    if password:
        found += [f"{name}:{password}@", f"{unquote(name)}:{unquote(password)}"]
    elif name and parts.scheme in ("http", "https"):
        # In a web address, a name without a password is a token.
        found += [name, unquote(name)]
    found += [value for parameter, value in query if SECRET_NAME.search(parameter)]
    return tuple(dict.fromkeys(filter(None, found)))


def _count_chars(value: Any) -> int:
    """Count the characters of text in a value, up to `LARGE_CHARS`."""
    todo = [value]
    chars = 0
    while todo and chars < LARGE_CHARS:
        match todo.pop():
            case str() as text:
                chars += len(text)
            case dict() as members:
                todo += [*members, *members.values()]
            case (list() | tuple()) as members:
                todo += members
    return chars


@lru_cache(maxsize=1024)
def _forms(secret: str) -> frozenset[str]:
    return _written_forms(secret) | frozenset(_base64_forms(secret.encode("utf-8", "surrogatepass")))


def _written_forms(secret: str) -> frozenset[str]:
    content = secret.encode("utf-8", "surrogatepass")
    encoded = {quote(content, safe=""), quote(content), quote_plus(content)}
    written = {
        secret,
        repr(secret)[1:-1],
        repr(content)[2:-1],
        html.escape(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    }
    return frozenset(
        {
            *written,
            # An event is JSON, and may contain a result that is JSON.
            *(json.dumps(form)[1:-1] for form in written),
            *encoded,
            *(_HEX_ESCAPE.sub(lambda match: match[0].lower(), form) for form in encoded),
        }
    )


def _base64_forms(content: bytes) -> Iterator[str]:
    """Yield the base64 characters of `content` that do not depend on the bytes around it, for each alignment."""
    for before, shared in enumerate(_CHARS_OF_NEIGHBOUR):
        whole = (before + len(content)) * 8 // 6
        text = base64.b64encode(bytes(before) + content).decode()[shared:whole]
        yield text
        yield text.translate(_URL_SAFE)


# --- Paths of the server --------------------------------------------------------------------------------------------
# In URLs, only paths without a host: `file:///…`, `sqlite:////…`.
_PATH = re.compile(r"(?:(?<![\w/:.~-])|(?<=://)|(?<=:///))/([\w.@+-]+)((?:/[\w.@+ -]*[\w.@+-])+)/?")
_WINDOWS_PATH = re.compile(r"(?<!\w)[A-Za-z]:\\(?:[\w.@+ -]+\\)*([\w.@+-]+)")


@lru_cache(maxsize=1)
def _roots() -> frozenset[str]:
    """Return the names in the root folder: they distinguish a path, `/srv/app`, from a route, `/v1/models`."""
    try:
        return frozenset(place.name for place in Path("/").iterdir())
    except OSError:
        return frozenset({"etc", "home", "opt", "root", "srv", "tmp", "usr", "var"})


def without_paths(text: str) -> str:
    """Return `text` with `…/name` instead of each path of this machine, which is private."""

    def shorten(match: re.Match[str]) -> str:
        return f"…/{Path(match[2]).name}" if match[1] in _roots() else match[0]

    return _WINDOWS_PATH.sub(r"…/\1", _PATH.sub(shorten, text))
