"""What a stream says where an agent takes words back: nothing that was sent can be unsaid. Pure."""

from callboard.http.openai.constructs import OpenConstruct
from callboard_protocol import Event, ToolCallComplete, ToolCallError, ToolCallStart

TAKEN_BACK = "\n\n> The answer begins anew: what stands above since the last tool call is taken back.\n\n"


def note_below(draft: str) -> str:
    """The note to stand below the words that are taken back, outside of any code that they leave open."""
    construct = OpenConstruct()
    *lines, last = draft.split("\n")
    for line in lines:
        construct.line(line)
    construct.line(last)
    return ("\n" * bool(construct.end and last) + construct.end) + TAKEN_BACK


def ends_a_draft(event: Event) -> bool:
    """Whether what was said before the event can no longer be taken back."""
    return isinstance(event, (ToolCallStart, ToolCallComplete, ToolCallError))
