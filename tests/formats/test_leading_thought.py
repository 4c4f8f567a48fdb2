"""The thought that a model writes into its answer, in pieces of any size."""

import pytest

from callboard_formats import LeadingThought


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("written", "thought", "text"),
    [
        ("<think>Hmm.</think>Yes.", "Hmm.", "Yes."),
        ("\n<think>\nHmm.</think>\n\nYes.", "Hmm.", "Yes."),
        ("<think></think>\n\nYes.", "", "Yes."),
        ("<think>1 </ 2 </thi", "1 </ 2 </thi", ""),
        ("<think>Hmm.", "Hmm.", ""),
        ("Use <think> and </think>.", "", "Use <think> and </think>."),
        ("<thi", "", "<thi"),
        ("<thinly> sliced", "", "<thinly> sliced"),
        ("  1 < 2\n", "", "  1 < 2\n"),
        ("\n", "", "\n"),
        ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    ],
)
def test_thought_before_answer_is_separated(written: str, thought: str, text: str, size: int) -> None:
    reader = LeadingThought()
    pieces = [reader.feed(written[at : at + size]) for at in range(0, len(written), size)]
    assert tuple(map("".join, zip(*pieces, reader.finish(), strict=True))) == (thought, text)
