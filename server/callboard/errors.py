"""Every error that Callboard raises: each class, with the classes that derive from it.

    CallboardError: SettingsError, AgentError, RunError, RequestError, StorageError, ModelError, ToolError
    SettingsError: NotSetUp
    AgentError: UnknownAgent, AgentRefused
    RunError: UnknownRun, RunConflict, RunEnding, RunLost, LogExpired, UnknownInput, UnknownFile, RunTimeout,
        TooManyRuns, QuotaExceeded, ShuttingDown
    RequestError: RequestTooLarge, RequestTimeout, ServerBusy, HostRefused, OriginRefused, BodyRefused, UserRefused,
        Unauthorized
    StorageError: UnknownChat, UnknownResponse, UnknownToolCall
    ModelError: ModelRefused, ModelUnauthorized, ModelRateLimited, ModelTimeout, ModelUnreachable, ModelCutOff,
        ModelAborted, ModelMalformedCall
    ToolError: UnknownTool, InvalidArguments, ToolTimeout, ToolCancelled, ToolDenied, AddressRefused, ToolLimit
    ToolDenied: ToolNotAsked, ToolNotAnswered

Each class has a `code`, which identifies it in events, responses and the database. Each message says what to do.
`callboard.http` maps the classes to HTTP statuses.
"""


class CallboardError(Exception):
    """The base of all errors that Callboard raises."""

    code = "internal_error"


class SettingsError(CallboardError):
    """A setting is wrong; the server does not start."""

    code = "settings"


class NotSetUp(SettingsError):
    """A part of the server needs settings that are not set; the message names them."""

    code = "not_set_up"


class AgentError(CallboardError):
    """An agent, or the file that defines it, is wrong."""

    code = "agent_error"


class UnknownAgent(AgentError):
    """No agent has this id; the message lists the agents."""

    code = "unknown_agent"


class AgentRefused(AgentError):
    """The user may not use the agent, according to their role and groups."""

    code = "agent_refused"


class RunError(CallboardError):
    """A request about a run fails."""

    code = "run_error"


class UnknownRun(RunError):
    """No run has this id, or it ended long ago."""

    code = "unknown_run"


class RunConflict(RunError):
    """Another chat or user has a run with this id, or a run with this id has ended and its events are deleted."""

    code = "run_conflict"


class RunEnding(RunError):
    """The run has ended or is about to, so its model reads no more messages."""

    code = "run_ending"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} has ended or is about to: send the message as the next turn of the chat")


class RunLost(RunError):
    """Another server has taken the run over, because this one did not renew its lease in time."""

    code = "run_lost"


class LogExpired(RunError):
    """The requested event is no longer in the run's log."""

    code = "log_expired"


class UnknownInput(RunError):
    """The run does not ask this question, or no longer."""

    code = "unknown_input"


class UnknownFile(RunError):
    """The run has no such file, or no longer."""

    code = "unknown_file"


class RunTimeout(RunError):
    """The run took longer than the limit."""

    code = "run_timeout"


class TooManyRuns(RunError):
    """The limit of open runs is reached."""

    code = "too_many_runs"


class QuotaExceeded(RunError):
    """The user's quota of the day is used up; the next day begins in `ends_in_seconds`."""

    code = "quota_exceeded"

    def __init__(self, message: str, ends_in_seconds: float = 0) -> None:
        super().__init__(message)
        self.ends_in_seconds = ends_in_seconds


class ShuttingDown(RunError):
    """The server is stopping and begins no runs."""

    code = "shutting_down"


class RequestError(CallboardError):
    """A request is refused."""

    code = "invalid_request"


class RequestTooLarge(RequestError):
    """The request body is over the limit."""

    code = "request_too_large"


class RequestTimeout(RequestError):
    """The request body did not arrive in time."""

    code = "request_timeout"


class ServerBusy(RequestError):
    """Other requests leave too little memory for this one; the client may soon retry."""

    code = "server_busy"


class HostRefused(RequestError):
    """The host name of the request is not one of the server's: a web page may have made its own name resolve to it."""

    code = "host_refused"


class OriginRefused(RequestError):
    """The web page is from another origin, which may not call the server."""

    code = "origin_refused"


class BodyRefused(RequestError):
    """The body is compressed, or its content type is not JSON; web pages of any origin can send such requests."""

    code = "body_refused"


class Unauthorized(RequestError):
    """The key is missing or wrong."""

    code = "unauthorized"


class UserRefused(RequestError):
    """The caller may act for one user only, and named another; the message names the right one."""

    code = "user_refused"


class StorageError(CallboardError):
    """The database cannot be read or written."""

    code = "storage"


class UnknownChat(StorageError):
    """No chat has this id, or another user owns it."""

    code = "unknown_chat"


class UnknownResponse(StorageError):
    """No response has this id, another user owns it, or it was not stored."""

    code = "unknown_response"


class UnknownToolCall(StorageError):
    """The chat has no tool call with this id."""

    code = "unknown_tool_call"


class ModelError(CallboardError):
    """The model's endpoint failed."""

    code = "model_error"


class ModelRefused(ModelError):
    """The endpoint refuses this request, for example because of a long context or a picture that it cannot read.

    `upstream_code` is the endpoint's own error code; empty if it gave none.
    """

    code = "model_refused"

    def __init__(self, message: str, upstream_code: str = "") -> None:
        super().__init__(message)
        self.upstream_code = upstream_code


class ModelUnauthorized(ModelError):
    """The endpoint refuses the key."""

    code = "model_unauthorized"


class ModelRateLimited(ModelError):
    """The endpoint's rate limit or quota is reached."""

    code = "model_rate_limited"


class ModelTimeout(ModelError):
    """The endpoint did not answer in time."""

    code = "model_timeout"


class ModelUnreachable(ModelError):
    """The endpoint cannot be connected to, or the connection broke."""

    code = "model_unreachable"


class ModelCutOff(ModelError):
    """The endpoint's answer is incomplete."""

    code = "model_cut_off"


class ModelAborted(ModelError):
    """The endpoint ended its answer with an error: the answer is incomplete, and its calls do not run."""

    code = "model_aborted"


class ModelMalformedCall(ModelError):
    """The endpoint could not parse the call that its model wrote, even after another attempt."""

    code = "model_malformed_call"


class ToolError(CallboardError):
    """A tool call failed. Tools may raise it with a message for the model."""

    code = "tool_failed"


class UnknownTool(ToolError):
    """The model called a tool that the agent does not have."""

    code = "unknown_tool"


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema."""

    code = "invalid_args"


class ToolTimeout(ToolError):
    """The tool did not end in time."""

    code = "timeout"


class ToolCancelled(ToolError):
    """The call was stopped or has timed out; raised in a tool that still reports progress, so that it ends."""

    code = "cancelled"


class ToolDenied(ToolError):
    """The user, or a rule of the agent, refused the call; it was not run."""

    code = "denied"


class ToolNotAsked(ToolDenied):
    """The call needs approval, but the user could not be asked; it was not run."""

    code = "not_asked"


class ToolNotAnswered(ToolDenied):
    """The call needs approval, and the user gave no answer in time, or none that fits; it was not run."""

    code = "not_answered"


class AddressRefused(ToolError):
    """Tools may not fetch this address, because it belongs to a private network or to this machine."""

    code = "address_refused"


class ToolLimit(ToolError):
    """The limit of tool calls in a turn is reached; this one was not run."""

    code = "limit"
