"""Search services as they document themselves: their routes, their keys, their pages, their errors."""

import json
from typing import Any

from tests.skills.web.sites import Heard, Reply, answer, page

KEY = "a-key"

SEARXNG_FORBIDDEN = page("<!doctype html><title>403 Forbidden</title>")


def searxng(heard: Heard) -> Reply:
    """SearXNG with the JSON format enabled. `pageno` 3 is past the end, where its engines do not answer."""
    assert (heard.method, heard.path) == ("GET", "/search")
    query = heard.query
    if query["format"] != "json":
        return Reply(SEARXNG_FORBIDDEN.body, 403, SEARXNG_FORBIDDEN.headers)
    first = 1 + 2 * (int(query["pageno"]) - 1)
    results = [
        {
            "url": f"https://stage.example/{number}",
            "title": f"{query['q']} {number}",
            "content": "All about <b>lamps</b> &amp; gas.",
            "publishedDate": "2026-01-02T00:00:00" if query["categories"] == "news" else None,
        }
        for number in (first, first + 1)
    ]
    ended = query["pageno"] == "3"
    return answer(
        {
            "results": [] if ended else results,
            "unresponsive_engines": [["duckduckgo", "CAPTCHA"], ["google", "timeout"]] if ended else [],
        }
    )


def brave(heard: Heard) -> Reply:
    """Brave's web and news search: two results a page, ten pages."""
    if heard.headers.get("x-subscription-token") != KEY:
        return brave_error(422, "SUBSCRIPTION_TOKEN_INVALID", "The provided subscription token is invalid.")
    query = heard.query
    if not 1 <= len(query["q"]) <= 400 or len(query["q"].split()) > 50 or not 0 <= int(query["offset"]) <= 9:
        return brave_error(422, "VALIDATION", "Unable to validate request parameter(s)")
    kind = heard.path.split("/")[1]
    results: list[dict[str, Any]] = [
        {
            "title": f"{query['q']} {kind} {number}",
            "url": f"https://stage.example/{query['offset']}/{number}",
            "description": "All about lamps.",
            "age": "2 hours ago",
        }
        for number in (1, 2)
    ]
    if kind == "news":
        return answer({"type": "news", "query": {"original": query["q"]}, "results": results})
    results[0]["page_age"] = "2026-01-02T03:04:05"
    web = {"type": "search", "results": results, "family_friendly": True}
    return answer({"type": "search", "query": {"original": query["q"]}, "mixed": {"type": "mixed"}, "web": web})


def brave_error(status: int, code: str, detail: str, **headers: str) -> Reply:
    error = {"id": "5d83", "status": status, "code": code, "detail": detail, "meta": {"component": "x"}}
    return answer({"type": "ErrorResponse", "error": error, "time": 1663072993}, status, **headers)


def tavily(heard: Heard) -> Reply:
    """Tavily's search, with at most 20 of the requested results."""
    assert (heard.method, heard.path) == ("POST", "/search")
    if heard.headers.get("authorization") != f"Bearer {KEY}":
        return answer({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)
    body = json.loads(heard.body)
    if not 0 <= body["max_results"] <= 20:
        return answer({"detail": {"error": "Max results must be between 0 and 20."}}, 400)
    site = (body.get("include_domains") or ["stage.example"])[0]
    results = [
        {
            "title": f"{body['query']} {number}",
            "url": f"https://www.{site}/{number}",
            "content": "All about lamps.",
            **({"published_date": "Fri, 02 Jan 2026 03:04:05 GMT"} if body["topic"] == "news" else {}),
        }
        for number in range(1, body["max_results"] + 1)
    ]
    return answer({"query": body["query"], "answer": None, "results": results})
