"""What may stand around the calls that an answer ends in: a fence, and the end of the turn."""

import re

from callboard.formats.scanning.literals import Literals

TURN_ENDS = Literals(
    (
        "<|im_end|>",
        "<|eom_id|>",
        "<|eot_id|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|user|>",
        "<|observation|>",
        "<｜end▁of▁sentence｜>",
        "<end_of_turn>",
        "<eos>",
        "</s>",
    )
)
"""What a model may write behind its last call without going on."""

MAX_FENCE_LINE_CHARS = 40

FENCE = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+[\w.+-]*+[ \t]*+\r?\n")
HALF_FENCE = re.compile(r"(?:`+|~+)[ \t]*+[\w.+-]*+[ \t]*+\r?\Z")
FENCE_END = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+(?=[\r\n]|\Z)")
HALF_FENCE_END = re.compile(r"(?:`+|~+)\Z")
