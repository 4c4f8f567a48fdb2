"""Every error that Callboard raises, in one tree.

CallboardError
├── SettingsError            the environment is wrong; the server does not start
│   └── NotSetUp             what settings bring is not there, since they are not set
├── AgentError               an agent, or the file that defines it, is wrong
│   ├── UnknownAgent         no agent of that id
│   └── AgentRefused         an agent that is not for this user
├── RunError                 a request about a run that cannot be met
│   ├── UnknownRun           no run of that id, or it ended long ago
│   ├── RunConflict          the run id is taken by another chat or user
│   ├── RunLost              another server has taken the run over
│   ├── LogExpired           the log no longer reaches back that far
│   ├── UnknownInput         the run asks no such question, or no longer
│   ├── UnknownFile          the run has no such file
│   ├── RunTimeout           the run took longer than any may
│   ├── TooManyRuns          the server is at its limit
│   ├── QuotaExceeded        the user has used up what there is of a day
│   └── ShuttingDown         the server is about to stop
├── RequestError             a request that cannot be read
│   ├── RequestTooLarge
│   ├── RequestTimeout       a request that does not come to its end
│   ├── ServerBusy           what other requests brought leaves no memory for this one
│   ├── HostRefused          the server is called by a name that is not its own
│   ├── OriginRefused        a web page calls that may not
│   ├── BodyRefused          a body that does not say that it is JSON
│   ├── UserRefused          a caller who is one user's names another user
│   └── Unauthorized
├── StorageError             the database cannot be read or written
│   ├── UnknownChat          no chat of that id that this user may see
│   ├── UnknownResponse      no response of that id that this user may see
│   └── UnknownToolCall      no tool call of that id in the chat
├── ModelError               the model's endpoint failed
│   ├── ModelRefused         it does not take this request, and would not take it again
│   ├── ModelUnauthorized
│   ├── ModelRateLimited
│   ├── ModelTimeout
│   ├── ModelUnreachable
│   ├── ModelCutOff          its answer ended in the middle
│   ├── ModelAborted         it ended its answer with an error
│   └── ModelMalformedCall   it could not read the call that the model wrote
└── ToolError                a tool call failed; the model sees it and the run goes on
    ├── UnknownTool
    ├── InvalidArguments
    ├── ToolTimeout
    ├── ToolCancelled        the call is over, and its tool still at work
    ├── ToolDenied           the user, or the agent's own rules, refused it
    │   ├── ToolNotAsked     nobody could be asked whether it may run
    │   └── ToolNotAnswered  the user gave no answer in time
    ├── AddressRefused       an address that no tool may fetch
    └── ToolLimit

Each class has a `code`, the word that events, responses and the database use for it, and
each message says what to do. `callboard._http` maps classes to HTTP statuses.
"""


class CallboardError(Exception):
    """The root: everything that Callboard itself raises on purpose."""

    code = "internal_error"


class SettingsError(CallboardError):
    """The environment is wrong; the server does not start."""

    code = "settings"


class NotSetUp(SettingsError):
    """A thing that settings bring is not there, since they are not set; the message names them."""

    code = "not_set_up"


class AgentError(CallboardError):
    """An agent, or the file that defines it, is wrong."""

    code = "agent_error"


class UnknownAgent(AgentError):
    """No agent of that id; the message lists those there are."""

    code = "unknown_agent"


class AgentRefused(AgentError):
    """An agent that is not for this user: their role and groups do not have it."""

    code = "agent_refused"


class RunError(CallboardError):
    """A request about a run that cannot be met."""

    code = "run_error"


class UnknownRun(RunError):
    """No run of that id, or one that ended long ago."""

    code = "unknown_run"


class RunConflict(RunError):
    """The run id is taken by another chat or user."""

    code = "run_conflict"


class RunLost(RunError):
    """Another server has taken the run over, since this one was not heard of for too long."""

    code = "run_lost"


class LogExpired(RunError):
    """The run's log no longer reaches back to the event asked for."""

    code = "log_expired"


class UnknownInput(RunError):
    """The run asks no such question, or no longer."""

    code = "unknown_input"


class UnknownFile(RunError):
    """The run has no such file, or no longer."""

    code = "unknown_file"


class RunTimeout(RunError):
    """The run took longer than any may."""

    code = "run_timeout"


class TooManyRuns(RunError):
    """The server runs as many agents at once as it may."""

    code = "too_many_runs"


class QuotaExceeded(RunError):
    """The user has used up what there is for them of a day; `ends_in_seconds` are those until there is more."""

    code = "quota_exceeded"

    def __init__(self, message: str, ends_in_seconds: float = 0) -> None:
        super().__init__(message)
        self.ends_in_seconds = ends_in_seconds


class ShuttingDown(RunError):
    """The server takes no new runs: it is about to end."""

    code = "shutting_down"


class RequestError(CallboardError):
    """A request that cannot be read."""

    code = "invalid_request"


class RequestTooLarge(RequestError):
    """A request body over the limit."""

    code = "request_too_large"


class RequestTimeout(RequestError):
    """A request that does not come to its end."""

    code = "request_timeout"


class ServerBusy(RequestError):
    """The memory that is left beside other requests is too little for this one; it may be sent again soon."""

    code = "server_busy"


class HostRefused(RequestError):
    """The server is called by a name that is not its own: a web page may have made that name point here."""

    code = "host_refused"


class OriginRefused(RequestError):
    """A web page calls that is not of this server and not allowed to."""

    code = "origin_refused"


class BodyRefused(RequestError):
    """A body that does not say that it is JSON; any web page may send such ones."""

    code = "body_refused"


class Unauthorized(RequestError):
    """No key, or a wrong one."""

    code = "unauthorized"


class UserRefused(RequestError):
    """A caller who is bound to one user names another; the message says whom to ask for."""

    code = "user_refused"


class StorageError(CallboardError):
    """The database cannot be read or written."""

    code = "storage"


class UnknownChat(StorageError):
    """No chat of that id that this user may see."""

    code = "unknown_chat"


class UnknownResponse(StorageError):
    """No response of that id that this user may see, or one that was not stored."""

    code = "unknown_response"


class UnknownToolCall(StorageError):
    """No tool call of that id in the chat."""

    code = "unknown_tool_call"


class ModelError(CallboardError):
    """The model's endpoint failed."""

    code = "model_error"


class ModelRefused(ModelError):
    """The endpoint does not take this request: too long a context, a picture that it cannot read.

    `upstream_code` is its own word for why, empty where it gave none.
    """

    code = "model_refused"

    def __init__(self, message: str, upstream_code: str = "") -> None:
        super().__init__(message)
        self.upstream_code = upstream_code


class ModelUnauthorized(ModelError):
    """The endpoint refused the key."""

    code = "model_unauthorized"


class ModelRateLimited(ModelError):
    """The endpoint is over its rate limit or quota."""

    code = "model_rate_limited"


class ModelTimeout(ModelError):
    """The endpoint did not answer in time."""

    code = "model_timeout"


class ModelUnreachable(ModelError):
    """No connection to the endpoint, or one that broke."""

    code = "model_unreachable"


class ModelCutOff(ModelError):
    """The endpoint ended its answer in the middle: what was said until then is not the whole."""

    code = "model_cut_off"


class ModelAborted(ModelError):
    """The endpoint ended its answer with an error as its reason: the answer is not whole, and no call of it runs."""

    code = "model_aborted"


class ModelMalformedCall(ModelError):
    """The endpoint could not read the call that its model wrote, also when it was asked again."""

    code = "model_malformed_call"


class ToolError(CallboardError):
    """A tool call failed; tools may raise it themselves to say why in their own words."""

    code = "tool_failed"


class UnknownTool(ToolError):
    """The model called a tool that the agent does not have."""

    code = "unknown_tool"


class InvalidArguments(ToolError):
    """The arguments are not what the tool's schema asks for."""

    code = "invalid_args"


class ToolTimeout(ToolError):
    """The tool did not end in time."""

    code = "timeout"


class ToolCancelled(ToolError):
    """The call was stopped or is out of time: told to a tool that reports all the same, so that it ends."""

    code = "cancelled"


class ToolDenied(ToolError):
    """The user, or the agent's own rules, refused the call; it was not run."""

    code = "denied"


class ToolNotAsked(ToolDenied):
    """Nobody could be asked whether the call may run; it was not run."""

    code = "not_asked"


class ToolNotAnswered(ToolDenied):
    """The user was to be asked whether the call may run and gave no answer in time; it was not run."""

    code = "not_answered"


class AddressRefused(ToolError):
    """An address that no tool may fetch: it belongs to a private network, or to this machine."""

    code = "address_refused"


class ToolLimit(ToolError):
    """The turn has used up its tool calls; this one was not run."""

    code = "limit"
