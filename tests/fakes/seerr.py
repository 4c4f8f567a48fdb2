"""A Seerr over real HTTP: the routes of its API v1 that the media tools use, its gate, its checks, its errors.

    async with SeerrServer() as seerr:
        skill = Seerr(seerr.url, KEY)

`movies` and `series` are what TMDB has, by number; `library` what is in the library, as
`MediaInfo` objects. Requests and issues that are made are kept in `requests` and `issues`.
`refusal`, where it is set, is the answer to everything. `translations` of a title, by language, are
what changes of it on the list of what is trending.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes.http_server import HttpServer

Body = dict[str, Any]

KEY = "a-key-of-seerr"
PAGE_SIZE = 20
# What express-openapi-validator lets no query value hold unless it is percent-encoded.
RESERVED = re.compile(r"[:/?#\[\]@!$&'()*+,;=]")
PARAMETERS = {
    "trending": {"page", "language"},
    "search": {"query", "page", "language"},
    "movies": {"page", "genre", "sortBy", "primaryReleaseDateGte", "primaryReleaseDateLte"}
    | {"voteAverageGte", "voteCountGte"},
    "tv": {"page", "genre", "sortBy", "firstAirDateGte", "firstAirDateLte", "voteAverageGte", "voteCountGte"},
    "request": {"take", "skip", "filter"},
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with an error status: JSON, or a page where `content_type` says so."""

    status: int
    body: str | bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def refused(status: int, message: str, **headers: str) -> Refusal:
    """An error in Seerr's own shape."""
    return Refusal(status, json.dumps({"message": message, "errors": []}), headers)


def movie(number: int, title: str, date: str = "", **fields: Any) -> Body:
    """A movie as lists have it."""
    return {"id": number, "mediaType": "movie", "title": title, "releaseDate": date, "overview": "", **fields}


def series(number: int, name: str, date: str = "", *, seasons: int = 1, **fields: Any) -> Body:
    """A series; `seasons` beside its specials."""
    numbers = [{"seasonNumber": one, "episodeCount": 10, "id": number * 100 + one} for one in range(seasons + 1)]
    return {"id": number, "mediaType": "tv", "name": name, "firstAirDate": date, "seasons": numbers, **fields}


class SeerrServer:
    """The server; use it as an asynchronous context manager."""

    def __init__(self) -> None:
        self.url = ""
        self.refusal: Refusal | None = None
        self.trending: list[Body] = []
        self.people: list[Body] = []
        self.movies: dict[int, Body] = {}
        self.series: dict[int, Body] = {}
        self.library: dict[tuple[str, int], Body] = {}
        self.requests: list[Body] = []
        self.issues: list[Body] = []
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        """The paths with their queries, as they came."""

    def add(self, *titles: Body) -> None:
        """Puts titles into TMDB, and on the list of what is trending."""
        for title in titles:
            (self.movies if title["mediaType"] == "movie" else self.series)[title["id"]] = title
            self.trending.append(title)

    def own(self, kind: str, number: int, status: int, **fields: Any) -> None:
        """Puts a title into the library, in a `MediaStatus`."""
        media = {"id": 1000 + len(self.library), "tmdbId": number, "mediaType": kind, "status": status, "seasons": []}
        self.library[kind, number] = media | fields

    async def __aenter__(self) -> Self:
        self._server = await HttpServer(self._routes()).__aenter__()
        self.url = f"http://127.0.0.1:{self._server.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    def _routes(self) -> Starlette:
        api = {
            "/discover/trending": self._trending,
            "/discover/movies": self._discover,
            "/discover/tv": self._discover,
            "/genres/{kind}": self._genres,
            "/search": self._search,
            "/movie/{number:int}": self._details,
            "/tv/{number:int}": self._details,
        }
        routes = [Route(f"/api/v1{path}", self._gated(endpoint)) for path, endpoint in api.items()]
        posts = {"/request": self._request, "/issue": self._issue}
        routes += [Route("/api/v1/request", self._gated(self._list_requests), methods=["GET"])]
        routes += [Route(f"/api/v1{path}", self._gated(endpoint), methods=["POST"]) for path, endpoint in posts.items()]
        # Whatever is no API is the web application.
        return Starlette(routes=[*routes, Route("/{path:path}", _page)])

    def _gated(self, endpoint: Any) -> Any:
        async def gate(request: Request) -> Response:
            self.headers.append(dict(request.headers))
            self.asked.append(request.url.path + (f"?{request.url.query}" if request.url.query else ""))
            if self.refusal is not None:
                said = self.refusal
                return Response(said.body, said.status, dict(said.headers), media_type=said.content_type)
            # The validator stands before the gate, as in Seerr.
            if problem := _invalid(request):
                return JSONResponse({"message": problem, "errors": [{"message": problem}]}, 400)
            if request.headers.get("X-Api-Key") != KEY:
                error = "You do not have permission to access this endpoint"
                return JSONResponse({"status": 403, "error": error}, 403)
            answer: Response = await endpoint(request)
            return answer

        return gate

    async def _trending(self, request: Request) -> Response:
        language = request.query_params.get("language", "")
        return self._paged(request, [{**one, **one.get("translations", {}).get(language, {})} for one in self.trending])

    async def _discover(self, request: Request) -> Response:
        return self._paged(request, list((self.movies if "movies" in request.url.path else self.series).values()))

    async def _search(self, request: Request) -> Response:
        words = request.query_params["query"].casefold()
        entries = [*self.movies.values(), *self.series.values(), *self.people]
        # TMDB knows the titles in every language, and returns those in the server's.
        return self._paged(request, [one for one in entries if any(words in name.casefold() for name in _names(one))])

    async def _genres(self, request: Request) -> Response:
        return JSONResponse([{"id": 28, "name": "Action"}, {"id": 35, "name": "Comedy"}])

    async def _details(self, request: Request) -> Response:
        kind = request.url.path.split("/")[-2]
        found = (self.movies if kind == "movie" else self.series).get(request.path_params["number"])
        if found is None:
            name = "movie" if kind == "movie" else "series"
            return JSONResponse({"message": f"Unable to retrieve {name}."}, 500)
        return JSONResponse({**found, "mediaInfo": self.library.get((kind, found["id"]))})

    async def _request(self, request: Request) -> Response:
        body = await request.json()
        key = body["mediaType"], body["mediaId"]
        taken = [one for one in self.requests if (one["type"], one["media"]["tmdbId"]) == key]
        seasons: list[int] = []
        if key[0] == "movie" and taken:
            return JSONResponse({"message": "Request for this media already exists."}, 409)
        if key[0] == "tv":
            numbers = [one["seasonNumber"] for one in self.series[key[1]]["seasons"] if one["seasonNumber"]]
            there = {season["seasonNumber"] for one in taken for season in one["seasons"]}
            seasons = [one for one in (numbers if body["seasons"] == "all" else body["seasons"]) if one not in there]
            if not seasons:
                return JSONResponse({"message": "No seasons available to request"}, 202)
        if key not in self.library:
            self.own(key[0], key[1], 2)
        made = {
            "id": len(self.requests) + 1,
            "type": key[0],
            "status": 2,
            "is4k": body["is4k"],
            "createdAt": "2026-11-20T10:00:00.000Z",
            "media": self.library[key],
            "seasons": [{"id": 1, "seasonNumber": number, "status": 2} for number in seasons],
            "requestedBy": {"id": 1, "displayName": "Ada"},
        }
        self.requests.append(made)
        return JSONResponse(made, 201)

    async def _list_requests(self, request: Request) -> Response:
        take, skip = (int(request.query_params[name]) for name in ("take", "skip"))
        wanted = {"all": {1, 2, 3, 4}, "pending": {1}, "failed": {4}}.get(request.query_params["filter"], {2})
        newest = [one for one in reversed(self.requests) if one["status"] in wanted]
        pages = {"pages": -(-len(newest) // take), "pageSize": take, "results": len(newest), "page": skip // take + 1}
        return JSONResponse({"pageInfo": pages, "results": newest[skip : skip + take]})

    async def _issue(self, request: Request) -> Response:
        body = await request.json()
        if body["mediaId"] not in {media["id"] for media in self.library.values()}:
            return JSONResponse({"message": "Media does not exist."}, 404)
        self.issues.append(body)
        return JSONResponse({"id": len(self.issues), "status": 1, **body})

    def _paged(self, request: Request, entries: list[Body]) -> Response:
        page = int(request.query_params.get("page", 1))
        shown = entries[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        results = [{**one, "mediaInfo": self.library.get((one["mediaType"], one["id"]))} for one in shown]
        pages = -(-len(entries) // PAGE_SIZE)
        return JSONResponse({"page": page, "totalPages": pages, "totalResults": len(entries), "results": results})


def _names(entry: Body) -> list[str]:
    every = [entry, *entry.get("translations", {}).values()]
    return [one.get("title") or one["name"] for one in every]


async def _page(_: Request) -> Response:
    return Response("<!DOCTYPE html><html>Seerr</html>", media_type="text/html")


def _invalid(request: Request) -> str:
    """What the validator says: from the query as it came, where Starlette has decoded it already."""
    known = PARAMETERS.get(request.url.path.split("/")[-1], set()) if request.method == "GET" else set()
    for pair in filter(None, request.url.query.split("&")):
        name, _, value = pair.partition("=")
        if name not in known:
            return f"Unknown query parameter '{name}'"
        if RESERVED.search(value):
            return f"Parameter '{name}' must be url encoded. Its value may not contain reserved characters."
    return ""
