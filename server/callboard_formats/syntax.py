"""What every syntax is made of: calls as they were written, thoughts between tags, a way to read one block.

And why a call cannot be run, in words that a model can act on.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import regex

from callboard_formats.text_buffer import Reading, TextBuffer

Schemas = Mapping[str, Mapping[str, Any]]
"""The JSON schemas of the tools' parameters, by the tools' names."""

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
"""The tokens that end a model's turn, which a server may have left in the text."""
ENDS_OF_TURN = regex.compile(rf"(?:\s|{END_OF_TURN.pattern})*\Z", regex.IGNORECASE)
"""Such tokens and white space, up to the end."""
LAST_OBSERVATION = regex.compile(r"(?:\*\*)?observation:(?:\*\*)?\s*+\Z", regex.IGNORECASE)
"""ReAct's label of a result, without one: the model waits for it."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as it stands in the text: `arguments` is JSON text, or whatever the model wrote instead.

    `truncated`: its end was not seen. `untyped`: values stood between tags, so that only the schema tells
    the number 5 from the word. `words`: where the arguments are no JSON they may be the one text that the
    tool takes. `broken`: it is not written as its syntax is, so it is refused, whatever may be read in it.
    """

    name: str
    arguments: str
    truncated: bool = False
    untyped: bool = False
    words: bool = False
    broken: bool = False


BlockItems = Sequence[WrittenCall | str]
"""The calls of a block and the texts in it, in order."""


class Within(Enum):
    """What stands between a pair of tags."""

    THOUGHT = "a thought"
    STEP = "ReAct's thought, which the model is shown again before the call that follows it"
    OBSERVATION = "what a tool would have said: after a call, or in the final answer, nothing counts from there on"
    MESSAGE = "the answer, in which nothing is a call"


@dataclass(frozen=True, slots=True)
class Tags:
    """Literals that a thought, or a message, stands between; matched without regard to case.

    They count at the beginning of a line, outside fenced code; elsewhere they are quoted.
    """

    opener: str
    closer: str
    within: Within = Within.THOUGHT
    first: bool = False
    """They count only where no text has come before."""
    calls: bool = True
    """Calls at the end of the answer count, even if this was never closed."""
    ends_before: bool = False
    """The closer begins the next block."""
    followed_by: "regex.Pattern[str] | None" = None
    """What stands behind the closer, which else is text."""

    @property
    def until_call(self) -> bool:
        """Whether any block ends it as well as the closer does (`Thought:` … `Action:`)."""
        return self.within in (Within.STEP, Within.OBSERVATION)

    @property
    def marks_a_thought(self) -> bool:
        """Whether the closer says, wherever it stands, that what came before was thought."""
        # What ends a channel's thought ends its messages too.
        return self.within is Within.THOUGHT and self.calls


@dataclass(frozen=True, slots=True)
class BlockContext:
    """The place where a block may begin.

    `line_start`: at the beginning of a line; `first`: no text and no call came before; `schemas`: those of the tools;
    `answering`: within the final answer; `is_introduced`: the text before it ends no sentence ("A model writes").
    """

    line_start: bool
    first: bool
    schemas: Schemas
    answering: bool = False
    is_introduced: bool = False


class Watcher(Protocol):
    """Who is shown arguments while they are written."""

    def arguments(self, name: str, text: str) -> None:
        """Take a piece of the arguments of the block's first call, which is sure to come."""
        ...


class _NoWatcher:
    def arguments(self, name: str, text: str) -> None:
        """Look away."""


NO_WATCHER = _NoWatcher()
"""The watcher where nobody is to be shown arguments: it may yet turn out that they are none."""


class Syntax(ABC):
    """One way to write calls in text."""

    name: str
    """The word for it, such as `react` or `hermes`."""
    openers: Sequence[str]
    """The literals that a block may begin with, matched without regard to case."""
    reasoning: Sequence[Tags] = ()
    """The tags around its models' thoughts."""
    stops: Sequence[str] = ()
    """What an imagined result, or turn, begins with: what follows one of them after a call is dropped, calls too.

    An endpoint is told to stop before those of a syntax that is asked for.
    """
    markers: Sequence[str] = ()
    """What the user is never shown of it: no tags that anybody may write. An opener that begins no block is shown."""
    models: Sequence[str] = ()
    """Patterns of the names of models that write so."""
    template: Sequence[str] = ()
    """Words that only their chat templates have."""
    prompt_opens: Sequence[str] = ()
    """Patterns of the names of models whose prompt ends with the opener of a thought."""
    at_line_start_only = False
    """Its blocks begin at the beginning of a line, so it need not be asked amid words."""
    refuses = False
    """It knows a call of its own though it is not quite right, and has `refuse`."""
    is_leak = False
    """The model was not asked for it, and was asked for another one."""
    answers = False
    """It has a marker of the final answer, and `begins_answer`."""

    @abstractmethod
    def read(self, buffer: TextBuffer, context: BlockContext, watcher: Watcher) -> "Reading[BlockItems | None]":
        """Read the block whose opener stands at `buffer.position`, and move behind it.

        Returns its calls, and text in it that is for the user, in order; nothing at all where it is mere
        scaffolding, and None where it is no block: what stands there is prose.
        """

    def refuse(self, buffer: TextBuffer, context: BlockContext) -> "Reading[Sequence[WrittenCall] | None]":  # noqa: ARG002 - the contract's
        """Read the block at `buffer.position`, in which no syntax could read a call, as calls that are refused.

        None where it names no tool, or only speaks of one: what stands there is prose.
        """
        yield from ()
        return None

    @property
    def has_end(self) -> bool:
        """Whether this syntax gives its calls an end."""
        return True

    def is_closed(self, block: str) -> bool:  # noqa: ARG002 - the contract's
        """Return whether a block of calls is seen to have the end that this syntax gives it."""
        return False

    def begins_answer(self, block: str) -> bool:  # noqa: ARG002 - the contract's
        """Return whether a block that it read is the marker of the final answer."""
        return False


class CallError(Exception):
    """A call that cannot be run; `code` is the word for the reason."""

    code = "invalid_call"


class UnknownTool(CallError):
    """There is no such tool."""

    code = "unknown_tool"


class InvalidArguments(CallError):
    """The arguments cannot be read, or are not what the tool's schema asks for."""

    code = "invalid_args"
