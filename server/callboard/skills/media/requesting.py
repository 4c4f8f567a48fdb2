"""The tools that act on Seerr, and the list of what was asked for. Agents may put them behind confirmation."""

import asyncio
from typing import Annotated, Literal, assert_never

from pydantic import Field

from callboard.errors import ToolError
from callboard.skills.media.browsing import Page, Text, TmdbId, details_of
from callboard.skills.media.seerr import Seerr, connect
from callboard.skills.media.wire import Details, Made, MediaType, Request, Requests
from callboard.skills.media.wording import KINDS, REQUEST_STATES, availability, check_title, titled
from callboard.tools import ToolContext, tool

PAGE_SIZE = 10
PENDING, PROCESSING, AVAILABLE = 2, 3, 5

ISSUE_TYPES = {"video": 1, "audio": 2, "subtitles": 3, "other": 4}
"""Seerr's `IssueType`."""

SeasonNumber = Annotated[int, Field(ge=0)]


@tool
async def media_request(
    context: ToolContext,
    tmdb_id: TmdbId,
    media_type: MediaType,
    title: Text,
    seasons: Literal["all"] | list[SeasonNumber] | None = None,
) -> str:
    """Requests a movie, or seasons of a series, for the library. This starts a download on the user's own server.

    Only for a title that the user chose. Take its number from an earlier answer; where there is
    none, or several titles fit, use media_search and ask first.

    Args:
        tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
        media_type: `movie`, or `tv` for a series.
        title: The title that belongs to the number, as the earlier answer had it.
        seasons: For a series, which is required: `all`, or a list of numbers such as [1, 2]. Leave out for a movie.
    """
    async with connect(context.services.settings) as seerr:
        details = await details_of(seerr, tmdb_id, media_type)
        check_title(details, media_type, title)
        body: dict[str, object] = {"mediaType": media_type, "mediaId": tmdb_id, "is4k": False}
        match media_type:
            case "movie":
                if details.media_info and details.media_info.status in (PENDING, PROCESSING, AVAILABLE):
                    return f"Nothing to request: {titled(details, media_type)} is {availability(details.media_info)}."
            case "tv":
                body["seasons"] = _wanted(details, seasons)
            case _:
                assert_never(media_type)
        made = await seerr.post(Made, "/request", body)
    return _outcome(made, details, media_type)


@tool(read_only=True)
async def media_requests(
    context: ToolContext,
    state: Literal["all", "pending", "approved", "processing", "available", "failed"] = "all",
    page: Page = 1,
) -> str:
    """Lists what was requested, newest first: by whom, whether it was approved, whether it is there by now.

    Args:
        state: Only requests that wait for approval (`pending`), are `approved`, are `processing`, `available`
            or `failed`; leave out for all.
        page: Which page; the answer says whether there are more.
    """
    async with connect(context.services.settings) as seerr:
        found = await seerr.get(Requests, "/request", take=PAGE_SIZE, skip=PAGE_SIZE * (page - 1), filter=state)
        lines = await asyncio.gather(*(_requested(seerr, request) for request in found.results))
    if not lines:
        return "No such requests." if page == 1 else "No more requests."
    if page < found.page_info.pages:
        lines.append(f"More with page={page + 1}, of {found.page_info.pages}.")
    return "\n".join((f"{found.page_info.results} requests, page {page}:", *lines))


@tool
async def media_report_issue(
    context: ToolContext,
    tmdb_id: TmdbId,
    media_type: MediaType,
    title: Text,
    problem: Literal["video", "audio", "subtitles", "other"],
    message: Text,
    season: SeasonNumber | None = None,
    episode: Annotated[int, Field(ge=1)] | None = None,
) -> str:
    """Reports that something is wrong with a title in the library, to whoever runs it.

    Args:
        tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
        media_type: `movie`, or `tv` for a series.
        title: The title that belongs to the number, as the earlier answer had it.
        problem: What is wrong: `video`, `audio`, `subtitles`, or `other`.
        message: What is wrong, in the user's words.
        season: For a series: which season. Leave out where it is all of them.
        episode: For a series, with its season: which episode. Leave out where it is all of them.
    """
    async with connect(context.services.settings) as seerr:
        details = await details_of(seerr, tmdb_id, media_type)
        check_title(details, media_type, title)
        if details.media_info is None:
            raise ToolError(f"{titled(details, media_type)} is not in the library: there is nothing to report on.")
        body: dict[str, object] = {
            "issueType": ISSUE_TYPES[problem],
            "message": message,
            "mediaId": details.media_info.id,
        }
        if media_type == "tv":
            # 0 is all of them.
            body |= {"problemSeason": season or 0, "problemEpisode": episode or 0}
        made = await seerr.post(Made, "/issue", body)
    return f"Reported as issue {made.id}: {problem} of {titled(details, media_type)}."


def _wanted(details: Details, seasons: Literal["all"] | list[int] | None) -> Literal["all"] | list[int]:
    """The seasons to ask for. Raises `ToolError` for none, and for those that the series has not."""
    there = [season.season_number for season in details.seasons]
    if not seasons:
        raise ToolError(f"Say which seasons: 'all', or a list of numbers. {titled(details, 'tv')} has {there}.")
    if seasons != "all" and (unknown := sorted(set(seasons) - set(there))):
        raise ToolError(f"{titled(details, 'tv')} has no season {unknown}: it has {there}.")
    return seasons


def _outcome(made: Made, details: Details, media_type: MediaType) -> str:
    if made.id is None:
        # Seerr says 202 where every season is there or asked for.
        return f"Nothing to request of {titled(details, media_type)}: {made.message or 'it is there, or requested.'}"
    state = REQUEST_STATES.get(made.status or 0, "made")
    seasons = ", ".join(str(season.season_number) for season in made.seasons)
    part = f", season {seasons}" if seasons else ""
    return f"Requested as request {made.id}: {titled(details, media_type)}{part}. It is {state}."


async def _requested(seerr: Seerr, request: Request) -> str:
    tmdb_id = request.media.tmdb_id or 0
    try:
        name = titled(await details_of(seerr, tmdb_id, request.type), request.type)
    except ToolError:
        # One title that TMDB has lost must not hide the other requests.
        name = f"A {KINDS[request.type]} whose title cannot be read [tmdb:{tmdb_id}]"
    seasons = ", ".join(str(season.season_number) for season in request.seasons)
    return (
        f"- {name}{f', season {seasons}' if seasons else ''}: {REQUEST_STATES.get(request.status, 'made')}, "
        f"{availability(request.media)}. Request {request.id} of {request.requested_by.display_name or 'somebody'}, "
        f"{request.created_at[:10]}"
    )
