"""Lets the user change the arguments of a call while they are asked to approve it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from callboard.calls.approval import ALWAYS
from callboard.calls.arguments import CALL_AGAIN, DO_NOT_FIT
from callboard.calls.call import ResolvedCall, read_object, show_arguments, write_arguments
from callboard.calls.executor import check_arguments
from callboard.calls.forms import UnfitAnswer, make_changes_form, read_changes
from callboard.errors import ToolError
from callboard.redaction import Redaction


class ChangesForm:
    """The form in which the user can change a call's arguments.

    `schema` has the arguments with their values as defaults; {} if none can be changed, for example because all are
    secret or none fits a form. `call` is the call to run: after `read`, with the user's changes. `was_unfit`: the last
    changes did not fit.
    """

    def __init__(self, call: ResolvedCall, redaction: Redaction) -> None:
        self.call = call
        self.was_unfit = False
        hidden = call.tool.secret_arguments
        # In some formats the model writes every value as a text, so its own text would not fit the schema.
        self._given = read_object(write_arguments(call.arguments) if call.call.is_untyped else call.arguments_text)
        self.schema = make_changes_form(call.tool.parameters, self._given, hidden, redaction.value)
        if hidden and call.call.is_untyped:
            # The values for the function, written as JSON, have asterisks in place of secrets.
            self.schema = {}

    def read(self, answer: Any) -> Any:
        """Make the changes that an answer has, and return its decision: True or `ALWAYS`.

        An answer without arguments is returned unchanged.

        Raises `UnfitAnswer` if the tool does not accept the changed arguments.
        """
        given = answer.get("arguments") if isinstance(answer, Mapping) else None
        if not (self.schema and isinstance(given, Mapping)):
            return answer
        self.was_unfit = True
        arguments = read_changes(self.schema, self._given, given)
        if arguments != self._given:
            try:
                values = check_arguments(self.call.tool, arguments)
            except ToolError as error:
                raise UnfitAnswer(str(error).removeprefix(DO_NOT_FIT).removesuffix(CALL_AGAIN)) from error
            self.call = replace(
                self.call,
                call=replace(self.call.call, is_changed=True),
                arguments=values,
                arguments_text=write_arguments(arguments),
            )
        self.was_unfit = False
        return ALWAYS if answer.get("always") is True else True


def explain_changes(call: ResolvedCall) -> str:
    """Return the note for the model about the user's changes; "" for an unchanged call."""
    if not call.call.is_changed:
        return ""
    return f"The user changed the arguments of this call before they allowed it. It ran with {show_arguments(call)}"
