"""The route of approvals that wait."""

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callboard.http.chat_routes import UNCACHED
from callboard.http.query import PageQuery, read_query
from callboard.http.state import get_server_state


async def list_approvals(request: Request) -> Response:
    """Return a page of the user's calls that wait for approval, newest first: `{"approvals": […], "next_cursor": …}`.

    The query takes `limit` up to 200, and `cursor`, the `next_cursor` of the previous page. Each call has the ids of
    its run and its question: `POST /v1/runs/{run_id}/input` with the `request_id` and the `value` true or false answers
    it. A server then continues the run.
    """
    query = read_query(request, PageQuery)
    page = await get_server_state(request).store.waiting_approvals(query.user_id, query.limit, query.cursor)
    approvals = [asdict(approval) for approval in page.approvals]
    return JSONResponse({"approvals": approvals, "next_cursor": page.next_cursor}, headers=UNCACHED)


ROUTES = [Route("/v1/approvals", list_approvals)]
