"""The base class of all syntaxes, the calls that they read, and the errors of calls that cannot run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import regex

from callboard_formats.text_buffer import Reading, TextBuffer

Schemas = Mapping[str, Mapping[str, Any]]
"""The JSON schemas of the tools' parameters by the tools' names."""

END_TOKENS = (
    *(
        f"<|{word}|>"
        for word in (
            "im_end", "eot_id", "eom_id", "eot", "eom", "end", "endoftext", "return", "end_of_msg", "observation",
            "END_OF_TURN_TOKEN", "end_of_text", "role_end", "assistant_end", "endofresponse", "ifm|im_end",
        )
    ),
    "</s>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>", "[e~[", "<seed:eos>", "</longcat_s>", "<SPECIAL_12>",
    "<｜hy_eos｜>", "<｜hy_eos:opensource｜>", "<end_of_sentence>",
)  # fmt: skip
END_OF_TURN = regex.compile(f"(?:{'|'.join(map(regex.escape, END_TOKENS))})", regex.IGNORECASE)
"""A token that ends a model's turn. Some servers leave these tokens in the text."""
ENDS_OF_TURN = regex.compile(rf"(?:\s|{END_OF_TURN.pattern})*\Z", regex.IGNORECASE)
"""Tokens that end the turn and white space, up to the end of the text."""
LAST_OBSERVATION = regex.compile(r"(?:\*\*)?observation:(?:\*\*)?\s*+\Z", regex.IGNORECASE)
"""ReAct's label of a result at the end of the text, where the model waits for the result."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as the model wrote it.

    Attributes:
        name: The written name, which may not be a tool's name.
        arguments: JSON, or the text that the model wrote instead of JSON.
        truncated: The call has no end, because the answer was cut off or the end is missing.
        untyped: The values are strings from between tags, and the schema decides their types.
        words: Arguments that are not JSON may be the value of the tool's only string argument.
        broken: The call violates its syntax and is refused.
        bare: The call is an object with only a name, so it counts only beside another call.
    """

    name: str
    arguments: str
    truncated: bool = False
    untyped: bool = False
    words: bool = False
    broken: bool = False
    bare: bool = False


def has_full_call(calls: Iterable[WrittenCall]) -> bool:
    """Return whether one of the calls is not bare."""
    return any(not call.bare for call in calls)


BlockItems = Sequence[WrittenCall | str]
"""The calls of a block and the texts in it, in order."""


class TextKind(Enum):
    """The kind of text between a pair of tags."""

    THOUGHT = "reasoning"
    STEP = "ReAct's thought, which later requests contain together with the call behind it"
    OBSERVATION = "an imagined result: behind a call or in the final answer, all text from its beginning on is dropped"
    MESSAGE = "a message to the user, which contains no calls"


@dataclass(frozen=True, slots=True)
class Tags:
    """A pair of literals around a thought or a message, matched regardless of case.

    The opener has a meaning only at the beginning of a line and outside of fenced code. Elsewhere it is text.
    """

    opener: str
    closer: str
    kind: TextKind = TextKind.THOUGHT
    first: bool = False
    """The tags have a meaning only if no text precedes them."""
    opens: "regex.Pattern[str] | None" = None
    """The pattern that must match at the opener; otherwise the opener is text."""
    calls: bool = True
    """Calls at the end of the answer count even if they are in a thought that is never closed."""
    ends_before: bool = False
    """The closer is also the beginning of the next block."""
    followed_by: "regex.Pattern[str] | None" = None
    """The pattern that must follow the closer; otherwise the closer is text."""

    @property
    def until_call(self) -> bool:
        """Whether any block ends the thought, in addition to its closer (`Thought:` … `Action:`)."""
        return self.kind in (TextKind.STEP, TextKind.OBSERVATION)

    @property
    def marks_a_thought(self) -> bool:
        """Whether the closer alone shows that all text before it was a thought."""
        # Not for channels, because the closer of their thoughts also ends messages.
        return self.kind is TextKind.THOUGHT and self.calls


Watcher = Callable[[str, str], None]
"""Receives a tool's name and a piece of the arguments of its call, while they are written."""


@dataclass(frozen=True, slots=True)
class BlockContext:
    """The facts about a position at which a block may begin.

    Attributes:
        line_start: It is at the beginning of a line.
        first: No text and no call precede it.
        schemas: The parameters of the tools.
        answering: It is inside the final answer.
        is_introduced: The text before it is an unfinished sentence ("A model writes").
        watcher: Receives the arguments of the block's first call. Without it, the block may turn out to be text.
    """

    line_start: bool
    first: bool
    schemas: Schemas
    answering: bool = False
    is_introduced: bool = False
    watcher: Watcher | None = None


class Syntax(ABC):
    """One way to write calls in text."""

    name: str
    """The syntax's name in settings, such as `react` or `hermes`. Several syntaxes may share a name."""
    openers: Sequence[str]
    """The literals that can begin a block, matched regardless of case."""
    reasoning: Sequence[Tags] = ()
    """The tags around the thoughts of models that write this syntax."""
    stops: Sequence[str] = ()
    """The beginnings of imagined results and turns. Behind a call, everything from such a beginning on is dropped.

    They are also the stop sequences of requests that ask for this syntax.
    """
    markers: Sequence[str] = ()
    """The literals that the user must not see. Openers and tags that are common in text are not included."""
    models: Sequence[str] = ()
    """Patterns of the names of models that write this syntax."""
    template: Sequence[str] = ()
    """Texts that only the chat templates of these models contain."""
    prompt_opens: Sequence[str] = ()
    """Patterns of the names of models whose prompt ends with the opener of a thought."""
    at_line_start_only = False
    """Blocks begin only at the beginning of a line."""
    refuses = False
    """The syntax recognises malformed calls and implements `refuse`."""
    is_leak = False
    """The model was not asked for this syntax."""
    answers = False
    """The syntax has a marker of the final answer and implements `begins_answer`."""

    @abstractmethod
    def read(self, buffer: TextBuffer, context: BlockContext) -> "Reading[BlockItems | None]":
        """Read the block whose opener is at `buffer.position`, and move behind it.

        Return the calls and the texts for the user in the block, in order. Return an empty list if the block contains
        neither and is dropped, and None if the text there is no block.
        """

    def refuse(self, buffer: TextBuffer, context: BlockContext) -> "Reading[Sequence[WrittenCall] | None]":  # noqa: ARG002 - required by the base class
        """Read the block at `buffer.position`, which no syntax could read, as `broken` calls.

        Return None if the block is text, because it names no tool or only mentions a tool.
        """
        yield from ()
        return None

    @property
    def has_end(self) -> bool:
        """Whether calls in this syntax have an end marker."""
        return True

    def is_closed(self, block: str) -> bool:  # noqa: ARG002 - required by the base class
        """Return whether a block of calls ends with the syntax's end marker."""
        return False

    def begins_answer(self, block: str) -> bool:  # noqa: ARG002 - required by the base class
        """Return whether a block that was read is the marker of the final answer."""
        return False


class CallError(Exception):
    """A call cannot run. The message tells the model why, and `code` names the reason."""

    code = "invalid_call"


class UnknownTool(CallError):
    """The call names no known tool."""

    code = "unknown_tool"


class InvalidArguments(CallError):
    """The arguments cannot be read or do not fit the tool's schema."""

    code = "invalid_args"
