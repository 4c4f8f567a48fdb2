"""Tokens and labels that a model leaks do not reach the user, and all other text does, unchanged."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard_formats.cleaning import Cleaner
from callboard_formats.markers import (
    MODEL_MARKERS,
    SYNTAX_LABELS,
    TOKENS,
    list_fragments,
    select_markers,
)

MAX_HELD_CHARS = 80
Syntaxes = tuple[str, ...] | None
EVERY_SYNTAX: Syntaxes = None
NAMES: tuple[Syntaxes, ...] = (EVERY_SYNTAX, ("react",), ("xml",))
MODELS = ("", "qwen3-8b", "mistralai/Mistral-Small", "meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b", "gemma-3")


def clean_all(text: str, syntaxes: Syntaxes, model: str) -> str:
    """Return a whole answer, cleaned."""
    cleaner = Cleaner(syntaxes, model)
    return cleaner.feed(text) + cleaner.finish()


def fed(parts: list[str], syntaxes: Syntaxes = EVERY_SYNTAX, model: str = "") -> tuple[str, int]:
    """Return the result, and the largest number of characters held back while nothing was being removed."""
    cleaner = Cleaner(syntaxes, model)
    shown = ""
    given_chars = 0
    most = 0
    for part in parts:
        shown += cleaner.feed(part)
        given_chars += len(part)
        most = max(most, given_chars - len(shown))
    return shown + cleaner.finish(), most


@pytest.mark.parametrize(("text", "clean"), [
    ("Hello<|im_end|>", "Hello"),
    ("<|im_start|>assistant\nHello", "Hello"),
    ("<|start_header_id|>assistant<|end_header_id|>Hello<|eot_id|>", "Hello"),
    ("<|channel|>final<|message|>Hello<|return|>", "Hello"),
    ('<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"q": "}"}<|call|>', " "),
    ('Let me look. to=functions.search json {"q": "a"} Done', "Let me look.  Done"),
    ('[TOOL_CALLS] [{"name": "search", "arguments": {}}] Done', " Done"),
    ('<tool_call>\n{"name": "x"}\n</tool_call>Done', "\nDone"),
    ("<tool_response>imagined\n</tool_response>Done", "Done"),
    ("```\n<|im_end|>\n```\n<|im_end|>Done", "```\n<|im_end|>\n```\nDone"),
    ("an open ` tick\n\n<|im_end|>", "an open ` tick\n\n"),
])  # fmt: skip
def test_stray_fragments_of_any_protocol_are_removed(text: str, clean: str) -> None:
    assert clean_all(text, EVERY_SYNTAX, "some-model") == clean


def test_an_unclosed_fragment_is_removed_only_to_the_end_of_its_paragraph() -> None:
    assert clean_all("<tool_response>it\n\nThe answer is 5.", EVERY_SYNTAX, "") == "\nThe answer is 5."


KEPT = [
    "Action: movies are great\nAction Input: none\nThought: I like them\nObservation: all do",
    "Final answers: 5. My Final Answer: 6",
    "`<|im_end|>` ends a turn, ``[TOOL_CALLS] ` `` begins calls",
    "~~~\n<|channel|>final\n```\n<|im_end|>\n~~~\n",
    "> ```\n> <|im_end|>\n> ```\n",
    "````md\n```\n<|im_end|>\n```\n<|im_end|>\n````\n",
    "```unclosed\n<|im_end|>\n\n<|im_end|>",
    "| token | meaning |\n|---|---|\n| <|im_end|> | end |\n| </tool_call> | end |\n",
    "the \"<|im_end|>\" token, “[TOOL_CALLS]”, '<tool_call>'",
    "»<|im_start|>«, 『<|im_start|>』, 《<|im_start|>》 and ‚<|im_start|>‘",
    "https://example.org/?redirect_to=functions.php and to=function",
    "a < b, a <| f |> b, [TOOL], <tool>, <s>struck</s>, [INST] and <think>",
    "code `a\nb <|im_end|> c` end",
]


@pytest.mark.parametrize("syntaxes", NAMES)
@pytest.mark.parametrize("text", KEPT)
def test_code_tables_indentation_and_quotations_are_unchanged(text: str, syntaxes: Syntaxes) -> None:
    assert clean_all(text, syntaxes, "some-model") == text


@pytest.mark.parametrize(("text", "clean"), [
    ("Final Answer: 5", "5"),
    ("**Final Answer:** 5\nThought: done\nObservation: imagined\nBye", "5\nBye"),
    ("Final Answer: 5\n**Observation**: imagined", "5\n"),
    ("Final Answer: 5\n  Thought: mine\n> Observation: mine\nA Thought: mine", None),
    ("Final Answer: 5\n```\nThought: code\n```\n", None),
    ("Thought: before any answer", None),
])  # fmt: skip
def test_react_labels_are_removed_only_for_react_and_after_the_final_answer(text: str, clean: str | None) -> None:
    expected = text.removeprefix("Final Answer: ") if clean is None else clean
    assert clean_all(text, ("react",), "") == expected
    assert clean_all(text, EVERY_SYNTAX, "") == text


def test_mistrals_prompt_token_is_removed_at_the_beginning() -> None:
    assert clean_all("<s>Hello", ("mistral",), "") == "Hello"
    assert clean_all("Hello <s>x</s> y", ("mistral",), "") == "Hello <s>x</s> y"
    assert clean_all("<s>Hello", ("hermes",), "") == "<s>Hello"


def test_a_reader_can_announce_the_final_answer() -> None:
    cleaner = Cleaner(("react",), "")
    assert cleaner.feed("Thought: shown\n") == "Thought: shown\n"
    cleaner.answer_begins()
    assert cleaner.feed("5\nThought: not shown\nBye") + cleaner.finish() == "5\nBye"


@pytest.mark.parametrize(("model", "text", "clean"), [
    ("qwen3:8b", "<think>\n\n</think>Hello", "\n\nHello"),
    ("meta-llama/Llama-3.1", "assistant\n\nHello", "Hello"),
    ("meta-llama/Llama-3.1", "Hello assistant\n\nHello", "Hello assistant\n\nHello"),
    ("openai/gpt-oss-20b", "Thinking.assistantfinalHello", "Thinking.\n\nHello"),
    ("microsoft/Phi-4-mini-instruct", "Hello<|tool|>", "Hello"),
    ("cognitivecomputations/dolphin-2.9", "Hello<|tool|>", None),
    ("ibm-granite/granite-3.3-8b-instruct", "<response>Hello</response>", "Hello"),
    ("tencent/Hunyuan-A13B-Instruct", "<answer>\nHello\n</answer>", "Hello"),
    ("tencent/Hunyuan-A13B-Instruct", "Words go behind <answer>", None),
    ("mistralai/Mistral-7B-Instruct-v0.3", '<s>"Hello," he said.', '"Hello," he said.'),
    ("mistralai/Ministral-8B-Instruct-2410", "<s> Hello <s>x</s>y", " Hello <s>x</s>y"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "The tag `<s>`, and <s>struck</s> words", None),
])  # fmt: skip
def test_tokens_that_a_model_leaks_are_removed_by_its_name(model: str, text: str, clean: str | None) -> None:
    assert clean_all(text, EVERY_SYNTAX, model) == (text if clean is None else clean)
    assert clean_all(text, EVERY_SYNTAX, "gpt-4o") == text


@pytest.mark.parametrize(("text", "clean"), [
    ("Hello</s>\n", "Hello\n"),
    ("Hello</s><|role_end|>\n[e~[", "Hello\n"),
    ("<s>no</s> yes", "<s>no</s> yes"),
    ("It ends with `</s>`", "It ends with `</s>`"),
    ('He said "hi"</s>', 'He said "hi"'),
    ("| a | b |\n|---|---|\n| 1 | 2 |<|return|>", "| a | b |\n|---|---|\n| 1 | 2 |"),
    ("Run:\n\n    ls -l</s><|role_end|>", "Run:\n\n    ls -l"),
    ("Run:\n\n```sh\nls\n```<|im_end|>", "Run:\n\n```sh\nls\n```"),
    ("> It ends with </s>\n> or not.", "> It ends with </s>\n> or not."),
])  # fmt: skip
def test_an_end_token_at_the_end_is_removed_in_every_format(text: str, clean: str) -> None:
    for syntaxes in (*NAMES, ("hermes",), ("minimax_m3",), ("gigachat3",)):
        assert clean_all(text, syntaxes, "gpt-4o") == clean


@pytest.mark.parametrize(("syntax", "text", "clean"), [
    ("command", "```\nls\n```<|END_RESPONSE|><|END_OF_TURN_TOKEN|>", "```\nls\n```"),
    ("kimi_k3", "> do it<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>", "> do it"),
    ("gigachat3", "```\nls\n```<|message_sep|>\n\n", "```\nls\n```\n\n"),
    ("harmony", "```\nls\n```<|end|>\n\nDone.", "```\nls\n```\n\nDone."),
    ("hermes", "> <tool_call>\n> {}\n> </tool_call>", "> <tool_call>\n> {}\n> </tool_call>"),
])  # fmt: skip
def test_message_ends_are_removed_behind_quotations_tables_and_fences(syntax: str, text: str, clean: str) -> None:
    for syntaxes in ((syntax,), ("hermes", syntax), EVERY_SYNTAX):
        assert clean_all(text, syntaxes, "") == clean


@pytest.mark.parametrize(("syntax", "text"), [
    ("kimi", "Done.<|tool_call_end|>"),
    ("minimax_m3", "Done.]<]minimax[>[</invoke>]<]minimax[>[</tool_call>"),
])  # fmt: skip
def test_only_the_markers_of_the_syntaxes_that_are_read_are_removed(syntax: str, text: str) -> None:
    for syntaxes in ((syntax,), ("react", syntax), EVERY_SYNTAX):
        assert clean_all(text, syntaxes, "") == "Done."
    for others in ((), ("react",)):
        assert clean_all(text, others, "") == text


@pytest.mark.parametrize(("text", "clean"), [
    ("<|EOT|>Hello<|eot|>", "Hello"),
    ("<|Eot|>Hello", "<|Eot|>Hello"),
    ("Hello<|Eot|>", "Hello"),
    ("<TOOL_RESPONSE>it</TOOL_RESPONSE>5", "5"),
])  # fmt: skip
def test_tokens_that_differ_only_in_case_follow_separate_rules(text: str, clean: str) -> None:
    assert clean_all(text, EVERY_SYNTAX, "") == clean


ALL_MARKERS = [marker.text for marker in (*TOKENS, *list_fragments(EVERY_SYNTAX))]
ALL_MARKERS += [marker.text for one in ("react", "xml") for marker in SYNTAX_LABELS[one]]
ALL_MARKERS += [marker.text for _, own in MODEL_MARKERS for marker in own]
NEAR = st.sampled_from(
    ["<|", "|>", "<", "[TOOL", "{", '{"', " to=", "functions", "</", "`", "```", "~~~", "\n", "\n\n",
     "    ", "| ", "> ", "- ", "Thought", "Final", ":", "**", "\\", "é", "\t", "\r\n", "K", "ſ", "word ", "assistant"]
)  # fmt: skip
near_text = st.lists(NEAR | st.text(max_size=4), max_size=25).map("".join)
marked_text = st.lists(NEAR | st.sampled_from(ALL_MARKERS) | st.text(max_size=4), max_size=25).map("".join)
with_names = st.tuples(st.sampled_from(NAMES), st.sampled_from(MODELS))


@given(marked_text, st.sampled_from(["```", "~~~~", "````"]), with_names)
def test_nothing_in_code_is_ever_changed(text: str, fence: str, names: tuple[Syntaxes, str]) -> None:
    code = text.replace("`", "'").replace("~", "-")
    block = f"Look:\n\n{fence}python\n{code}\n{fence}\n"
    assert clean_all(block, *names) == block
    line = f"Look: ``{' '.join(code.split())}`` so."
    assert clean_all(line, *names) == line


@given(marked_text, with_names, st.data())
@example("**Final Answer:** 5", (("react",), ""), None)
@example('a <|channel|>commentary to=functions.x json {"q": 1} <tool_call> {"a": [1]} b', (EVERY_SYNTAX, ""), None)
def test_every_split_gives_the_same_and_holds_back_little(
    text: str, names: tuple[Syntaxes, str], data: st.DataObject | None
) -> None:
    whole = clean_all(text, *names)
    assert fed(list(text), *names)[0] == whole
    if data is not None:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
        parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert fed(parts, *names)[0] == whole


@given(near_text, with_names)
def test_text_without_markers_is_unchanged_and_held_back_little(text: str, names: tuple[Syntaxes, str]) -> None:
    if select_markers(*names)[1].search(text, 0) is None:
        shown, held_chars = fed(list(text), *names)
        assert shown == text
        assert held_chars <= MAX_HELD_CHARS


def test_a_removed_fragment_may_end_in_quoted_text_cut_anywhere() -> None:
    quoted = "magined\n\nIt writes <tool_result> and </tool_result>."
    for step in range(1, len(quoted) + 1):
        cleaner = Cleaner(EVERY_SYNTAX, "")
        shown = cleaner.feed("<tool_result>i")
        shown += "".join(cleaner.pass_on(quoted[start : start + step]) for start in range(0, len(quoted), step))
        assert shown + cleaner.finish() == "\nIt writes <tool_result> and </tool_result>.", step
