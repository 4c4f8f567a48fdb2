"""Thoughts that the prompt has opened or that begin an answer."""

import pytest

from callboard._formats import FormatChoice, ToolFormat
from callboard._formats.reading import ScanningReader
from callboard.agents.answer import ModelAnswer
from callboard.models import Finish, ModelDelta, ReasoningDelta, TextDelta
from callboard_formats import ReasoningPiece, StreamParser, TextPiece
from callboard_formats.detection import find_format
from callboard_formats.leading_thought import LeadingThought
from callboard_protocol import Reasoning

OPENED = {
    "Qwen/QwQ-32B": "</think>",
    "Qwen/Qwen3-235B-A22B-Thinking-2507": "</think>",
    "baidu/ERNIE-4.5-21B-A3B-Thinking": "</think>",
    "inclusionAI/Ring-mini-2.0": "</think>",
    "inclusionAI/Ling-3.0-flash": "</think>",
    "Qwen/Qwen3.5-35B-A3B": "</think>",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "</think>",
    "zai-org/GLM-5": "</think>",
    "deepseek-ai/DeepSeek-R1": "</think>",
    "deepseek-ai/DeepSeek-V3.2": "</think>",
    "moonshotai/Kimi-K2.5": "</think>",
    "moonshotai/Kimi-K3": "<|close|>think<|sep|>",
    "tencent/Hy3": "</think>",
    "allenai/Olmo-3-7B-Think": "</think>",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "</think>",
    "stepfun-ai/step3": "</think>",
    "LLM360/K2-Horizon": "</ifm|think>",
}
WRITTEN = [
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-4B-Instruct-2507",
    "zai-org/GLM-4.6",
    "deepseek-ai/DeepSeek-V3.1",
    "deepseek-ai/DeepSeek-R1-0528",
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
    "moonshotai/Kimi-K2-Thinking",
    "allenai/Olmo-3-7B-Instruct",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5",
    "inclusionAI/Ring-2.5-1T",
]


def read(text: str, model: str, *, cut: bool = False) -> tuple[str, str]:
    """Return the thought and the answer, and check that they are the same character by character."""
    found = find_format(model)
    assert found is not None
    both = []
    for pieces in ([text], list(text)):
        parser = StreamParser([], [found.name], model=model)
        shown = [piece for one in pieces for piece in parser.feed(one)] + parser.finish(cut=cut)
        thought = "".join(piece.text for piece in shown if isinstance(piece, ReasoningPiece))
        both.append((thought, "".join(piece.text for piece in shown if isinstance(piece, TextPiece))))
    assert both[0] == both[1]
    return both[0]


@pytest.mark.parametrize(("model", "closer"), OPENED.items())
def test_the_models_name_says_that_the_prompt_opens_a_thought(model: str, closer: str) -> None:
    found = find_format(model)
    assert found is not None
    assert StreamParser([], [found.name], model=model).feed("I think") == [ReasoningPiece("I think")]
    assert StreamParser([], model=model).feed("I think") == [ReasoningPiece("I think")]
    assert read(f"I think\n{closer}\n\nIt is noon.", model) == ("I think", "It is noon.")


def test_a_thought_that_the_prompt_opened_is_read_in_every_format() -> None:
    for parser in (StreamParser([], ["react"], model="Qwen/QwQ-32B"), StreamParser([], ["react"], thinking=True)):
        assert parser.feed("I think") == [ReasoningPiece("I think")]
        assert parser.feed("</think>\n\nIt is noon.") == [TextPiece("It is noon.")]
    for thinking in (None, True):
        parser = StreamParser([], ["react"], model="kimi-k3", thinking=thinking)
        assert parser.feed("I think") == [ReasoningPiece("I think")]
        assert parser.feed("<|close|>think<|sep|>It is noon.") == [TextPiece("It is noon.")]


@pytest.mark.parametrize("model", WRITTEN)
def test_a_model_that_opens_its_thoughts_itself_answers_at_once(model: str) -> None:
    assert read("It is noon.", model) == ("", "It is noon.")


@pytest.mark.parametrize("opener", ["<think>", "\n<think>\n", "<THINK>"])
def test_a_second_opener_of_a_thought_is_not_shown(opener: str) -> None:
    assert read(f"{opener}I think\n</think>\n\nIt is noon.", "Qwen/QwQ-32B") == ("I think", "It is noon.")
    assert read(f"{opener}I think", "Qwen/QwQ-32B") == ("I think", "")


def test_a_closed_thought_does_not_become_the_answer() -> None:
    assert read("It is noon.\n</think>\n\n", "Qwen/QwQ-32B") == ("It is noon.", "")


@pytest.mark.parametrize(("reason", "answer"), [("stop", "I think"), (None, "I think"), ("length", "")])
def test_the_endpoint_says_whether_a_thought_was_cut_off(reason: str | None, answer: str) -> None:
    reader = ScanningReader("hermes", [], lambda given: given or "new", model="Qwen/QwQ-32B")
    pieces = [*reader.feed(TextDelta("I think")), *reader.feed(Finish(reason)), *reader.finish()]
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == answer


def test_with_rescue_the_beginning_of_an_answer_is_not_taken_for_a_thought() -> None:
    reader = ScanningReader("rescue", [], lambda given: given or "new", model="Qwen/QwQ-32B")
    assert reader.feed(TextDelta("It is noon.")) == [TextPiece("It is noon.")]


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("written", "thought", "text"),
    [
        ("<think>Hmm.</think>Yes.", "Hmm.", "Yes."),
        ("\n<think>\nHmm.</think>\n\nYes.", "Hmm.", "Yes."),
        ("<think></think>\n\nYes.", "", "Yes."),
        ("<think>1 </ 2 </thi", "1 </ 2 </thi", ""),
        ("<thinly> sliced", "", "<thinly> sliced"),
        ("\n", "", "\n"),
        ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    ],
)
def test_thought_before_answer_is_separated(written: str, thought: str, text: str, size: int) -> None:
    reader = LeadingThought()
    pieces = [reader.feed(written[at : at + size]) for at in range(0, len(written), size)]
    assert tuple(map("".join, zip(*pieces, reader.finish(), strict=True))) == (thought, text)


TWICE: list[tuple[list[str], str]] = [
    # A piece of the field begins with "+".
    (["+I will ", "<think>\nI will ", "+say hello.", "say hello.\n</think>\n\n"], "I will say hello."),
    (["+I will say hello.", "<think>I will say hello.</think>"], "I will say hello."),
    (["<think>I will say", "+I will say hello.", " hello.</think>"], "I will say hello."),
    (["+I will say", "<think>I will say hello.</think>"], "I will say hello."),
    (["+I will.", "<think>I am asked.</think>"], "I will.I am asked."),
    (["+I will.", "<think>I wi", "ll not.</think>"], "I will.I will not."),
    (["+I", "+ will\n\n", "+ say."], "I will\n\n say."),
]


@pytest.mark.parametrize("name", ["auto", "hermes"])
@pytest.mark.parametrize(("pieces", "thought"), TWICE)
def test_a_thought_in_the_text_and_in_a_field_is_shown_once(pieces: list[str], thought: str, name: ToolFormat) -> None:
    answer = ModelAnswer(FormatChoice(name).for_name("m").reader([], str), [], 1)
    deltas: list[ModelDelta] = [
        ReasoningDelta(piece[1:]) if piece.startswith("+") else TextDelta(piece) for piece in pieces
    ]
    events = [event for delta in [*deltas, TextDelta("Hello.")] for event in answer.feed(delta)] + answer.finish()
    assert "".join(event.content for event in events if isinstance(event, Reasoning)) == thought
    assert answer.text == "Hello."
