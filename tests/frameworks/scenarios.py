"""The scenarios of the conformance suite, each written once for every framework."""

from callboard.agents.notices import LIMIT_REACHED
from tests.fakes.openai_server import Answer, Body, Refusal, chunks, finish, text
from tests.frameworks.scenario import ADD, ADDED, Scenario, calls, says
from tests.frameworks.toolbox import LARGE_CHARS, PICTURE_URL

__all__ = ["ADD", "ADDED", "SCENARIOS", "Scenario", "calls", "says"]


def _adds_for_ever(body: Body) -> Answer:
    """Calls a tool even if none is offered."""
    asked = sum(message["role"] == "tool" for message in body["messages"])
    return calls(("add", f'{{"a": {asked}, "b": 1}}'), first=asked)


def _adds_while_it_can(body: Body) -> Answer:
    """Calls a tool as long as one is offered."""
    return _adds_for_ever(body) if body.get("tools") else says("That is enough.")


SCENARIOS = (
    Scenario(
        "text before a call",
        [calls(ADD, before="Let me add. "), says("It is 5.")],
        ["say Let me add. ", *ADDED, "say It is 5.", "done stop"],
        tools=["add"],
        sent=["user go", "assistant Let me add.  calls add {'a': 2, 'b': 3}", "tool 5"],
    ),
    Scenario(
        "parallel calls of different duration",
        [calls(("slow_add", '{"a": 1, "b": 1}'), ADD), says("2 and 5.")],
        [
            *("call 1 slow_add {'a': 1, 'b': 1}", "call 2 add {'a': 2, 'b': 3}", "result 2 5", "result 1 2"),
            *("say 2 and 5.", "done stop"),
        ],
        tools=["add", "slow_add"],
        in_order=True,
    ),
    Scenario(
        "tools that raise KeyboardInterrupt",
        [calls(("interrupt", "{}"), ("interrupt_in_thread", "{}")), says("They failed.")],
        [
            *("call 1 interrupt {}", "call 2 interrupt_in_thread {}", "failed 1 tool_failed", "failed 2 tool_failed"),
            *("say They failed.", "done stop"),
        ],
        tools=["interrupt", "interrupt_in_thread"],
        errors_say=["KeyboardInterrupt: enough"],
    ),
    Scenario(
        "one fails, one does not",
        [calls(("kaboom", '{"reason": "no fuel"}'), ADD), says("5, and a failure.")],
        [
            *("call 1 kaboom {'reason': 'no fuel'}", "call 2 add {'a': 2, 'b': 3}", "failed 1 tool_failed"),
            *("result 2 5", "say 5, and a failure.", "done stop"),
        ],
        tools=["add", "kaboom"],
        errors_say=["kaboom: no fuel"],
    ),
    Scenario(
        "arguments that are no JSON",
        [calls(("add", '{"a": 2, "b": oops')), says("I cannot.")],
        ['call 1 add {"a": 2, "b": oops', "failed 1 invalid_args", "say I cannot.", "done stop"],
        tools=["add"],
        sent=["user go", "assistant calls add {}", "tool …"],
    ),
    Scenario(
        "arguments of a wrong type",
        [calls(("add", '{"a": "two", "b": 3}')), says("I cannot.")],
        ["call 1 add {'a': 'two', 'b': 3}", "failed 1 invalid_args", "say I cannot.", "done stop"],
        tools=["add"],
    ),
    Scenario(
        "an unknown tool",
        [calls(("fly", '{"to": "Rome"}')), says("I cannot fly.")],
        ["call 1 fly {'to': 'Rome'}", "failed 1 unknown_tool", "say I cannot fly.", "done stop"],
        tools=["add"],
        errors_say=["fly"],
    ),
    Scenario(
        "a call without an id",
        [calls(ADD, ids=[None]), says("It is 5.")],
        [*ADDED, "say It is 5.", "done stop"],
        tools=["add"],
    ),
    Scenario(
        "two calls with one id",
        [calls(ADD, ("add", '{"a": 5, "b": 5}'), ids=["call", "call"]), says("5 and 10.")],
        [
            *("call 1 add {'a': 2, 'b': 3}", "call 2 add {'a': 5, 'b': 5}", "result 1 5", "result 2 10"),
            *("say 5 and 10.", "done stop"),
        ],
        tools=["add"],
        sent=["user go", "assistant calls add {'a': 2, 'b': 3} calls add {'a': 5, 'b': 5}", "tool 5", "tool 10"],
    ),
    Scenario(
        "an id that comes again",
        [calls(ADD), calls(("add", '{"a": 5, "b": 5}')), says("10."), calls(("add", '{"a": 1, "b": 1}')), says("2.")],
        [
            *(*ADDED, "call 2 add {'a': 5, 'b': 5}", "result 2 10", "say 10.", "done stop"),
            *("call 3 add {'a': 1, 'b': 1}", "result 3 2", "say 2.", "done stop"),
        ],
        tools=["add"],
        turns=["go", "and now?"],
    ),
    Scenario(
        "approval given",
        [calls(("wipe", '{"disk": "C"}')), says("Gone.")],
        [
            *("call 1 wipe {'disk': 'C'}", "status 1 pending waiting for approval", "ask 1 Run wipe?"),
            *("status 1 processing approved", "result 1 C is empty", "say Gone.", "done stop"),
        ],
        tools=["wipe"],
        reply=True,
        sent=["user go", "assistant calls wipe {'disk': 'C'}", "tool C is empty"],
    ),
    Scenario(
        "approval refused",
        [calls(("wipe", '{"disk": "C"}')), says("As you wish.")],
        [
            *("call 1 wipe {'disk': 'C'}", "status 1 pending waiting for approval", "ask 1 Run wipe?"),
            *("failed 1 denied", "say As you wish.", "done stop"),
        ],
        tools=["wipe"],
        reply=False,
        errors_say=["the user refused it"],
    ),
    Scenario(
        "approval that the settings want",
        [calls(ADD), says("No 5.")],
        [
            *(ADDED[0], "status 1 pending waiting for approval", "ask 1 Run add?"),
            *("failed 1 denied", "say No 5.", "done stop"),
        ],
        tools=["add"],
        reply=False,
        confirm_tools=["a*"],
        sent=[
            *("user go", "assistant calls add {'a': 2, 'b': 3}"),
            "tool Error: Not run: the user refused it. Do not try again; ask what they would like instead.",
        ],
    ),
    Scenario(
        "a tool that takes too long",
        [calls(("wait", "{}")), says("It took too long.")],
        [
            *("call 1 wait {}", "status 1 processing waiting", "failed 1 timeout"),
            *("say It took too long.", "done stop"),
        ],
        tools=["wait"],
        tool_timeout_seconds=0.05,
    ),
    Scenario(
        "progress from an asynchronous tool and from one in a thread",
        [calls(("travel", '{"place": "Rome"}')), calls(("drive", '{"place": "Pisa"}'), first=1), says("There.")],
        [
            *("call 1 travel {'place': 'Rome'}", "status 1 processing half way to Rome 50", "result 1 in Rome"),
            *("call 2 drive {'place': 'Pisa'}", "status 2 processing half way to Pisa 50", "result 2 in Pisa"),
            *("say There.", "done stop"),
        ],
        tools=["travel", "drive"],
    ),
    Scenario(
        "a thought in the text",
        [chunks(text("<thi"), text("nk>\nHmm. 1 < 2.</th"), text("ink>\n\nYes, <b"), text(">!"), finish("stop"))],
        ["think Hmm. 1 < 2.", "say Yes, <b>!", "done stop"],
    ),
    Scenario(
        "reasoning",
        [
            chunks(
                *(text(None, reasoning_content=thought) for thought in ("Hmm. ", "Yes.")), text("Yes!"), finish("stop")
            )
        ],
        ["think Hmm. Yes.", "say Yes!", "done stop"],
    ),
    Scenario(
        "a large result",
        [calls(("archive", "{}")), says("That was long.")],
        ["call 1 archive {}", f"result 1 <{LARGE_CHARS} characters>", "say That was long.", "done stop"],
        tools=["archive"],
    ),
    Scenario(
        "files",
        [calls(("paint", '{"what": "a cat"}')), says("Painted.")],
        ["call 1 paint {'what': 'a cat'}", "result 1 a cat, painted", "files 1 image", "say Painted.", "done stop"],
        tools=["paint"],
    ),
    Scenario(
        "a picture of the user's",
        [says("A picture.")],
        ["say A picture.", "done stop"],
        before=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE_URL}}]}],
        sent=[f"user {PICTURE_URL}go"],
    ),
    Scenario(
        "a second turn, with a system message of the client's",
        [calls(ADD), says("It is 5."), says("It was 5.")],
        [*ADDED, "say It is 5.", "done stop", "say It was 5.", "done stop"],
        tools=["add"],
        turns=["go", "what was it?"],
        before=[{"role": "system", "content": "Answer in verse."}],
        sent=["user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5", "assistant It is 5.", "user what was it?"],
    ),
    Scenario(
        "a background task",
        [says("A title")],
        ["say A title", "done stop"],
        tools=["add"],
        task="title_generation",
        sent=["user go"],
    ),
    Scenario(
        "stop in a call",
        [calls(("wait", "{}")), says("Never said.")],
        ["call 1 wait {}", "status 1 processing waiting", "failed 1 cancelled", "done cancelled"],
        tools=["wait"],
        stop_at="call",
    ),
    Scenario(
        "stop in the answer",
        [chunks(text("Once upon"), ending="hang")],
        ["say Once upon", "done cancelled"],
        stop_at="text",
    ),
    Scenario("the model refuses the key", [Refusal(401, "wrong key")], ["error model_unauthorized"]),
    Scenario("the model is over its limit", [Refusal(429, "slow down")], ["error model_rate_limited"]),
    Scenario("the model fails", [Refusal(500, "out of memory")], ["error model_error"]),
    Scenario(
        "the chat is too long for the model",
        [Refusal(400, "This model's maximum context length is 4096 tokens.")],
        ["error model_refused context_length_exceeded"],
        errors_say=["maximum context length is 4096 tokens"],
    ),
    Scenario(
        "the model's answer is cut",
        [chunks(text("Once upon"), ending="cut")],
        ["say Once upon", "error model_cut_off"],
    ),
    Scenario(
        "the model's answer ends in the middle, its connection in order",
        [chunks(text("Once upon"), ending="eof")],
        ["say Once upon", "error model_cut_off"],
    ),
    Scenario(
        "an endpoint that gives no finish reason",
        [chunks(text("Hello there."))],
        ["say Hello there.", "done stop"],
        sent=["user go"],
    ),
    Scenario(
        "a model that never ends",
        _adds_while_it_can,
        [
            *(line for n in range(1, 4) for line in (f"call {n} add {{'a': {n - 1}, 'b': 1}}", f"result {n} {n}")),
            *("call 4 add {'a': 3, 'b': 1}", "failed 4 limit", "say That is enough.", "done max_turns"),
        ],
        tools=["add"],
    ),
    Scenario(
        "a model that calls on without tools",
        _adds_for_ever,
        [
            *(line for n in range(1, 4) for line in (f"call {n} add {{'a': {n - 1}, 'b': 1}}", f"result {n} {n}")),
            *("call 4 add {'a': 3, 'b': 1}", "failed 4 limit", f"say {LIMIT_REACHED}", "done max_turns"),
        ],
        tools=["add"],
    ),
)
