"""Thoughts, and messages of Functionary, that the prompt has opened or that begin an answer."""

from typing import Any

import pytest

from callboard._formats.reading import ScanningReader
from callboard.models import Finish, TextDelta
from callboard_formats import LeadingThought, ReasoningPiece, StreamParser, TextPiece
from callboard_formats.detection import find_format
from tests.formats.corpus import TOOLS, cut, meant

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


# ---------------------------------------------------------------- Functionary: the first `>>>` is in the prompt


SCHEMAS = [tool.schema() for tool in TOOLS]
SEARCH: dict[str, Any] = {"query": "storms"}
CALL = '{"query": "storms"}'


def read_functionary(
    pieces: list[str], formats: list[str] | None, model: str = ""
) -> tuple[str, str, tuple[tuple[str, dict[str, Any] | str], ...]]:
    parsing = StreamParser(SCHEMAS, formats, model=model)
    shown = [one for piece in pieces for one in parsing.feed(piece)] + parsing.finish()
    return (
        "".join(one.text for one in shown if isinstance(one, TextPiece)),
        "".join(one.text for one in shown if isinstance(one, ReasoningPiece)),
        tuple(meant(call) for call in parsing.calls),
    )


MEANINGS = {
    f"search\n{CALL}": ("", (("search", SEARCH),)),
    f">>>search\n{CALL}": ("", (("search", SEARCH),)),
    f"all\nLet me look.\nNow.>>>search\n{CALL}>>>now\n{{}}<|eot_id|>": (
        "Let me look.\nNow.",
        (("search", SEARCH), ("now", {})),
    ),
    "all\nIt is noon.": ("It is noon.", ()),
    "all\nIn Python:\n>>> now()\n12": ("In Python:\n>>> now()\n12", ()),
    f"all\n```\n>>>search\n{CALL}\n```\nNothing was run.": (f"```\n>>>search\n{CALL}\n```\nNothing was run.", ()),
    "Well,\nit is noon.": ("Well,\nit is noon.", ()),
    "all": ("", ()),
    "now\n": ("", (("now", "invalid_args"),)),
    'search\n{"query": "sto': ("", (("search", "invalid_args"),)),
    f"search\n{CALL} and more": ("", (("search", "invalid_args"),)),
    f"all\nOne.>>>book_flight\n{CALL}>>>now\n{{}}": ("One.", (("book_flight", "unknown_tool"), ("now", {}))),
    "all\nA line with >>>value\nbegins nothing.": ("A line with >>>value\nbegins nothing.", ()),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_an_answer_continues_behind_the_separator_of_its_prompt(text: str) -> None:
    content, calls = MEANINGS[text]
    for pieces in ([text], list(text), *(cut(text, place) for place in range(1, len(text)))):
        assert read_functionary(pieces, ["functionary"]) == (content, "", calls), pieces


def test_the_models_name_decides_about_the_separator_if_every_syntax_is_read() -> None:
    text = f"all\nLet me look.>>>search\n{CALL}"
    assert read_functionary([text], None, "meetkai/functionary-small-v3.2") == (
        "Let me look.",
        "",
        (("search", SEARCH),),
    )
    assert read_functionary([f"search\n{CALL}"], None, "meetkai/functionary-small-v3.1") == (f"search\n{CALL}", "", ())


def test_code_for_python_is_no_json() -> None:
    python = {"name": "python", "parameters": {"type": "object", "properties": {"code": {"type": "string"}}}}
    code = 'print("""\n>>> now\n""")'
    for text, ran in ((f"python\n{code}<|eot_id|>", {"code": code}), (f"python\n{code}", None)):
        for pieces in ([text], list(text)):
            parsing = StreamParser([python], ["functionary"])
            for piece in pieces:
                parsing.feed(piece)
            parsing.finish()
            assert [call.arguments for call in parsing.calls] == [ran]
