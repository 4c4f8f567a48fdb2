"""Redaction: secrets stay out of logs, events, the store and what a model is told. The one place that knows them.

A `Redaction` is a set of secrets that may grow, and what takes them out of texts. The server has
one, with the secrets of its settings and of MCP servers; each run has one of its own above it,
with those that its tools named. Whoever writes a line of log while a run is at work finds that
run's as `current`.

A secret is found as it is, escaped for JSON, Python or HTML, encoded for a URL, and in base64 of
either alphabet wherever it begins. It is not found where it was changed in other ways: in hex,
compressed, with other characters in between.

Below everything; imports nothing of Callboard.
"""

import asyncio
import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

MASK = "[secret]"
MIN_SECRET_CHARS = 6
"""Shorter values would be found in ordinary words."""

MIN_WORD_CHARS = 12
"""Letters of one case, and digits, below this length are as likely a word or a number as a secret."""

MIN_INSIDE_CHARS = 8
"""A shorter secret is found where it stands apart, and not inside a word: `1ndex` is no part of `1ndexes`."""

LARGE_CHARS = 200_000
"""The length from which a text is searched in a thread: a million characters take some ten milliseconds."""

SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential|cookie", re.IGNORECASE)
"""The pattern of the names of headers, variables and parameters that hold a secret."""

# Before a secret that stands apart may be an escape, whose last character is a letter or a digit too.
_APART_BEFORE = r"(?:(?<![^\W_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[abfnrtv]))"
_APART_AFTER = r"(?![^\W_])"
_CONTEXT_CHARS = 3
"""The characters before a text on which `_APART_BEFORE` may depend."""

_HEX_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_BASE64_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_URL_SAFE = str.maketrans("+/", "-_")
# Of base64, the characters at the front that the bytes before have a part in, by how many those are.
_SHARED_CHARS = (0, 2, 3)


class Redaction:
    """Secrets that are known, and what takes them out of a text, a value or a stream.

    `above` is another whose secrets count too, those that are added to it later as well. A value
    that is shorter than `MIN_SECRET_CHARS`, or reads like a word or a number, is left in: with it
    half of all sentences would be gone.
    """

    def __init__(self, secrets: Iterable[str] = (), above: "Redaction | None" = None) -> None:
        self._above = above
        self._own: set[str] = set()
        self._known: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._pattern = re.compile(r"(?!)")
        self._beginnings: frozenset[str] = frozenset()
        self._longest = 0
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Make these secret from here on."""
        self._own.update(secret for secret in secrets if is_secret(secret))

    def __call__(self, text: str) -> str:
        """Return `text` with `MASK` in the place of each secret."""
        self._refresh()
        # Nearly always there is none, and to find that out this is the fastest way.
        if not any(form in text for form in self._forms):
            return text
        return self._pattern.sub(MASK, text)

    def value(self, value: Any) -> Any:
        """Return a value that JSON can hold, without secrets in texts, keys and numbers; the same object where none is.

        Objects of other types stay as they are. Where it is too deep to be walked, its JSON is searched
        as a text, and is what is returned if there is a secret in it.
        """
        self._refresh()
        if not self._forms:
            return value
        try:
            return self._value(value)
        except RecursionError:
            return self._deep_value(value)

    async def large(self, value: Any) -> Any:
        """Return `value(…)`, made in a thread where that takes so long that others would wait."""
        if _count_chars(value) < LARGE_CHARS:
            return self.value(value)
        return await asyncio.to_thread(self.value, value)

    def stream(self) -> "RedactedStream":
        """Return a redacted stream, for a text that comes in pieces."""
        return RedactedStream(self)

    def split(self, piece: str, before: str = "", *, is_last: bool = False) -> tuple[str, str]:
        """Return `piece` redacted up to where a secret may have begun that is not complete, and the rest as it is.

        `before` is the text that it follows. Nothing follows the last piece, so of that there is no rest.
        """
        self._refresh()
        if not self._forms:
            return piece, ""
        text = before + piece
        done: list[str] = []
        start = len(before)
        for match in self._pattern.finditer(text, start):
            # It may be the beginning of a longer one, or of a word.
            if not is_last and text[match.start() :] in self._beginnings:
                break
            done += [text[start : match.start()], MASK]
            start = match.end()
        places = range(max(start, len(text) - self._longest), len(text))
        unfinished = (place for place in places if text[place:] in self._beginnings)
        cut = len(text) if is_last else next(unfinished, len(text))
        return "".join([*done, text[start:cut]]), text[cut:]

    def _data_url(self, url: str, content_begins: int) -> str:
        """Return a `data:` URL without secrets in what it holds: in base64 not every form of one can be found."""
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
                return MASK if str(value) in self._secrets() else value
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

    def _refresh(self) -> None:
        known = self._secrets()
        if known == self._known:
            return
        # The longest first: one may be the beginning of another.
        self._forms = tuple(sorted({form for secret in known for form in _forms(secret)}, key=len, reverse=True))
        short = {form for secret in known if len(secret) < MIN_INSIDE_CHARS for form in _written_forms(secret)}
        patterns = (_stand_apart(form) if form in short else re.escape(form) for form in self._forms)
        self._pattern = re.compile("|".join(patterns) or r"(?!)")
        self._beginnings = frozenset(form[:end] for form in self._forms for end in range(1, len(form))) | short
        self._longest = max(map(len, self._forms), default=0)
        # Last, since a thread that sees it reads the others.
        self._known = known


class RedactedStream:
    """A text in pieces: what may be the beginning of a secret is held until it is known to be none."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._before = ""
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take a piece; return what can be shown once it has come."""
        text = self._held + piece
        shown, self._held = self._redaction.split(text, self._before)
        self._before = (self._before + text[: len(text) - len(self._held)])[-_CONTEXT_CHARS:]
        return shown

    def flush(self) -> str:
        """Return what was held, since nothing follows it."""
        shown, _ = self._redaction.split(self._held, self._before, is_last=True)
        self._held = self._before = ""
        return shown


current: ContextVar[Redaction | None] = ContextVar("callboard_redaction", default=None)
"""The redaction of the run that is at work, for whoever writes to the log meanwhile."""


def is_secret(value: str) -> bool:
    """Return whether a value can be taken out of texts: it is long enough, and reads like no word and no number."""
    reads_like_one = value.isalpha() and (value.islower() or value.isupper() or value.istitle())
    if len(value) < MIN_WORD_CHARS and (reads_like_one or (value.isdigit() and len(value) < MIN_SECRET_CHARS + 2)):
        return False
    return len(value.strip()) >= MIN_SECRET_CHARS


def hide_key(text: str, key: str) -> str:
    """Return `text` with `…` in the place of a key of any length; a short one may be a part of many words."""
    if not key:
        return text
    pattern = re.escape(key) if len(key) >= MIN_INSIDE_CHARS else _stand_apart(key)
    return re.sub(pattern, "…", text)


def _stand_apart(form: str) -> str:
    return f"{_APART_BEFORE}{re.escape(form)}{_APART_AFTER}"


def secrets_in_url(url: str) -> tuple[str, ...]:
    """Return the name and password that a URL brings, each as written and as meant, and its secret parameters.

    A password that is too short to be taken out alone still goes with its name: `name:password@`.
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
        # A token that stands in a name's place; a database's user is none.
        found += [name, unquote(name)]
    found += [value for parameter, value in query if SECRET_NAME.search(parameter)]
    return tuple(dict.fromkeys(filter(None, found)))


def _count_chars(value: Any) -> int:
    """Count the characters of text in a value, until it is known to be much."""
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
            # A result that is JSON stands in an event that is JSON.
            *(json.dumps(form)[1:-1] for form in written),
            *encoded,
            *(_HEX_ESCAPE.sub(lambda match: match[0].lower(), form) for form in encoded),
        }
    )


def _base64_forms(content: bytes) -> Iterator[str]:
    """Yield what is sure to stand in the base64 of any bytes that `content` is a part of."""
    for before, shared in enumerate(_SHARED_CHARS):
        whole = (before + len(content)) * 8 // 6
        text = base64.b64encode(bytes(before) + content).decode()[shared:whole]
        yield text
        yield text.translate(_URL_SAFE)


# --- Paths of the server --------------------------------------------------------------------------------------------
# Of URLs the paths of those that have no host: `file:///…`, `sqlite:////…`.
_PATH = re.compile(r"(?:(?<![\w/:.~-])|(?<=://)|(?<=:///))/([\w.@+-]+)((?:/[\w.@+ -]*[\w.@+-])+)/?")
_WINDOWS_PATH = re.compile(r"(?<!\w)[A-Za-z]:\\(?:[\w.@+ -]+\\)*([\w.@+-]+)")


@lru_cache(maxsize=1)
def _roots() -> frozenset[str]:
    """Return what the server's file system begins with: `/v1/models` is no path there, `/srv/app` may be one."""
    try:
        return frozenset(place.name for place in Path("/").iterdir())
    except OSError:
        return frozenset({"etc", "home", "opt", "root", "srv", "tmp", "usr", "var"})


def without_paths(text: str) -> str:
    """Return `text` with `…/name` for each path of this machine: where things lie on it is nobody's matter."""

    def shorten(match: re.Match[str]) -> str:
        return f"…/{Path(match[2]).name}" if match[1] in _roots() else match[0]

    return _WINDOWS_PATH.sub(r"…/\1", _PATH.sub(shorten, text))
