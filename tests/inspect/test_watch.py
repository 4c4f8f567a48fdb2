"""What is kept of runs in memory: all of the newest, bounded."""

import pytest

from callboard._inspect.watch import RunWatch, WatchedRun, count_chars
from callboard.models import ChatDict, ModelRequest, TokenUsage
from callboard.observers import ModelAnswered, ModelAsked, ObservedRun, RunLeft, RunPrepared, RunTakenOver
from callboard_protocol import Done, Message, Rewind, RunStart, ToolCallComplete, ToolCallStart
from tests.measuring import measuring_memory

SYSTEM = {"role": "system", "content": "Be kind."}


def run(name: str, chat_id: str | None = "c") -> ObservedRun:
    return ObservedRun(name, "clerk", chat_id)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def asked(*messages: dict[str, str]) -> ModelAsked:
    return ModelAsked("m", len(messages), 0, request=ModelRequest(messages))


def offered(count: int, **options: object) -> ModelAsked:
    """A request with so many tools, each of about a thousand characters, in new objects."""
    tools = [{"type": "function", "function": {"name": f"t{number}", "d": "x" * 1_000}} for number in range(count)]
    return ModelAsked("m", 1, count, request=ModelRequest([user("hi")], tools, options=options))


def sent_messages(seen: WatchedRun, index: int) -> list[ChatDict]:
    return list(seen.requests[index].messages or ())


def begin(watch: RunWatch, name: str = "r") -> WatchedRun:
    watch.observe(run(name), RunStart(run_id=name, agent="clerk"))
    seen = watch.find(name)
    assert seen is not None
    return seen


def play(watch: RunWatch, name: str, *messages: dict[str, str]) -> None:
    begin(watch, name)
    for what in (asked(*messages), Done()):
        watch.observe(run(name), what)


def test_each_request_is_complete_and_shared_messages_are_kept_once() -> None:
    watch = RunWatch()
    seen = begin(watch)
    long = user("x" * 100_000)
    grown = [SYSTEM, long]
    for number in range(20):
        # As a format makes them: the same texts in new objects.
        watch.observe(run("r"), asked(*(dict(message) for message in grown)))
        grown.append(user(f"more {number}"))
    assert [len(seen.requests[number].messages or ()) for number in (0, 1, 19)] == [2, 3, 21]
    assert sent_messages(seen, 19) == grown[:-1]
    # The same objects, so the long text is in memory once.
    assert len({id(request.messages and request.messages[1]) for request in seen.requests}) == 1
    assert seen.chars < 110_000
    # One with another beginning, and one of a framework that does not show its messages.
    watch.observe(run("r"), asked(user("b")))
    watch.observe(run("r"), ModelAsked("m", 3, 1))
    assert (sent_messages(seen, 20), seen.requests[20].shared) == ([user("b")], 0)
    assert (seen.requests[21].messages, seen.requests[21].message_count) == (None, 3)


def test_oldest_ended_runs_are_dropped_first() -> None:
    watch = RunWatch(max_runs=3)
    begin(watch, "live")
    for number in range(5):
        play(watch, f"r{number}", user("hi"))
    assert [seen.run.run_id for seen in watch] == ["live", "r3", "r4"]


def test_run_left_to_another_server_is_forgotten_and_late_observations_are_ignored() -> None:
    watch = RunWatch(max_chars=2_000)
    begin(watch)
    for what in (asked(user("x" * 1_500)), RunLeft(), asked(user("late")), Message(content="late")):
        watch.observe(run("r"), what)
    assert list(watch) == []
    # It takes no room from others any more.
    play(watch, "other", user("y" * 1_500))
    assert [seen.run.run_id for seen in watch] == ["other"]
    watch.observe(run("other"), RunLeft())
    assert list(watch) == []


def test_run_that_returns_to_this_server_begins_again() -> None:
    watch = RunWatch()
    begin(watch)
    for what in (Message(content="Half an "), RunTakenOver(1), Message(content="An answer.")):
        watch.observe(run("r"), what)
    [seen] = watch
    assert seen.show().whole_text == "An answer."


def test_forget_chat_drops_ended_runs_of_the_chat() -> None:
    watch = RunWatch()
    play(watch, "r", user("hi"))
    begin(watch, "live")
    watch.forget_chat("c")
    assert [seen.run.run_id for seen in watch] == ["live"]
    play(watch, "r2", user("hi"))
    assert [seen.run.run_id for seen in watch] == ["live", "r2"]


def test_rewind_removes_text_since_the_last_call_and_its_size() -> None:
    watch = RunWatch()
    seen = begin(watch)
    for what in (
        Message(content="Let me look. "),
        ToolCallStart(tool_call_id="a", tool_name="look"),
        ToolCallComplete(tool_call_id="a", result="x"),
    ):
        watch.observe(run("r"), what)
    chars = seen.chars
    for text in ("wrong", "worse"):
        watch.observe(run("r"), Message(content=text))
        watch.observe(run("r"), Rewind())
    assert seen.chars == chars
    watch.observe(run("r"), Message(content="Here."))
    assert seen.show().whole_text == "Let me look. Here."


def test_answer_belongs_to_its_request_also_after_the_end() -> None:
    watch = RunWatch()
    usage = TokenUsage(3, 4, 7)
    begin(watch)
    late = ModelAnswered("m", 1.0, None, None, None, "GeneratorExit")
    answer = ModelAnswered("m", 1.0, 0.5, "stop", usage, None)
    for what in (asked(user("a")), answer, asked(user("b")), Done(), late):
        watch.observe(run("r"), what)
    [seen] = watch
    assert seen.ending == Done()
    assert [request.usage for request in seen.requests] == [usage, None]
    first, last = (request.answer for request in seen.requests)
    assert first
    assert first.finish_reason == "stop"
    assert last is not None


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "x" * 5_000}},
        {"type": "image_url", "image_url": {"url": {"not": ["a", "url", "x" * 5_000]}}},
        {"type": "image_url", "image_url": {"url": None}, "else": "x" * 5_000},
        {"type": "of a kind that nobody knows", "x" * 5_000: None},
    ],
)
def test_message_of_any_form_counts_by_its_size(part: dict[str, object]) -> None:
    assert 5_000 < count_chars({"role": "user", "content": [part]}) < 6_000


def test_left_out_messages_and_requests_of_a_running_run_are_dropped_and_subtracted_once() -> None:
    watch = RunWatch(max_chars=3_000)
    seen = begin(watch)
    watch.observe(run("r"), RunPrepared([], [user("x" * 2_500)], 1))
    watch.observe(run("r"), asked(user("y" * 900)))
    assert (seen.left_out, seen.left_out_count) == ((), 1)
    for letter in "abc":
        watch.observe(run("r"), asked(user(letter * 900)))
    assert seen.requests[0].messages is None
    assert sent_messages(seen, 3) == [user("c" * 900)]
    # Texts and calls stay as long as the run goes on.
    watch.observe(run("r"), Message(content="x" * 5_000))
    for _ in range(3):
        watch.observe(run("r"), asked(user("y" * 1_000)))
        assert seen.chars == 5_000


def test_given_conversation_is_dropped_with_the_first_request_and_left_out_messages_stay() -> None:
    watch = RunWatch()
    seen = begin(watch)
    watch.observe(run("r"), RunPrepared([user("x" * 1_000)], [user("old")], 7))
    assert (seen.given, seen.left_out, seen.left_out_count) == ((user("x" * 1_000),), (user("old"),), 7)
    watch.observe(run("r"), asked(user("x" * 1_000)))
    assert (seen.given, seen.left_out) == ((), (user("old"),))
    assert seen.chars < 1_500


def test_tools_and_options_count_and_equal_tools_are_shared() -> None:
    watch = RunWatch()
    seen = begin(watch)
    for number in range(20):
        watch.observe(run("r"), offered(100, temperature=0.5, number=number // 10))
    first, *_, last = seen.requests
    assert (len(last.offered), last.options) == (100, {"temperature": 0.5, "number": 1})
    assert 100_000 < seen.chars < 150_000
    watch.observe(run("r"), offered(101))
    assert seen.chars > 200_000
    assert len(first.offered) == 100


def test_tools_are_dropped_with_the_requests() -> None:
    watch = RunWatch(max_chars=180_000)
    seen = begin(watch)
    for count in (100, 100, 1, 1):
        watch.observe(run("r"), offered(count))
    assert [len(request.offered) for request in seen.requests] == [100, 100, 1, 1]
    for count in (99, 1):
        watch.observe(run("r"), offered(count))
    assert [len(request.offered) for request in seen.requests] == [0, 0, 0, 0, 0, 1]
    assert 0 < seen.chars < 2_000


def test_a_piece_of_a_text_does_not_copy_the_text_before_it() -> None:
    # Strings that grow piece by piece leave holes of all sizes in the heap.
    watch = RunWatch()
    seen = begin(watch)
    watch.observe(run("r"), Message(content="x" * 1_000_000))
    with measuring_memory() as memory:
        watch.observe(run("r"), Message(content="y"))
    assert memory.peak_bytes < 100_000
    assert seen.show().text == "x" * 1_000_000 + "y"
