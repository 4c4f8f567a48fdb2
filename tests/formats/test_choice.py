"""The syntaxes that are read for a model: by its name, its chat template, its calls, and its family."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from structlog.testing import capture_logs

import callboard_formats
from callboard._formats import FormatChoice, Parsed, ParsedCall, ToolFormat, parse
from callboard.calls import ToolCall, tool
from callboard.models import ModelDelta, TextDelta, ToolCallDelta
from callboard_formats import ReasoningPiece, StreamParser, TextPiece
from callboard_formats.detection import find_format, prompt_opens_thought
from callboard_formats.formats import RELATED_FORMATS
from callboard_formats.table import ROWS


@pytest.mark.parametrize(
    ("model", "name"),
    [("gpt-5", "auto"), ("meta/Llama-2-13B-chat", "react"), ("llama-3.1-8b", "auto"), ("", "auto")],
)
def test_auto_means_react_for_listed_models(model: str, name: str) -> None:
    assert FormatChoice("auto", ("*llama-2*", "phi-2")).for_name(model).name == name
    assert FormatChoice().for_name(model).name == "auto"


CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


@tool(read_only=True)
def now() -> str:
    """Tells the time."""
    return "12:00"


def answers(formats: FormatChoice, model: str, delta: ModelDelta) -> list[ToolCall]:
    """Read an answer of the model, as a turn does."""
    chosen = formats.for_name(model)
    reader = chosen.reader([now], lambda given: given or "new")
    if isinstance(delta, ToolCallDelta) and delta.name:
        chosen.note_native_call()
    reader.feed(delta)
    reader.finish()
    calls = reader.calls()
    chosen.note_calls_in_text(calls)
    return calls


def test_a_model_that_writes_its_familys_calls_is_read_in_that_syntax_afterwards() -> None:
    formats = FormatChoice()
    assert formats.for_name("qwen3-8b").name == "auto"
    assert len(answers(formats, "qwen3-8b", TextDelta(CALL))) == 1
    assert formats.for_name("qwen3-8b").name == "hermes"
    [call] = answers(formats, "qwen3-8b", TextDelta(f"I look.\n{CALL}\nThere."))
    assert call.asks_first
    assert formats.for_name("qwen3-32b").name == "auto"


@pytest.mark.parametrize("model", ["gpt-5", "deepseek-v3.2"])
def test_a_call_in_another_familys_syntax_does_not_change_the_format(model: str) -> None:
    formats = FormatChoice()
    answers(formats, model, TextDelta(CALL))
    assert formats.for_name(model).name == "auto"


def test_a_native_call_ends_the_reading_of_the_familys_syntax() -> None:
    formats = FormatChoice()
    answers(formats, "qwen3-8b", TextDelta(CALL))
    answers(formats, "qwen3-8b", ToolCallDelta(0, "call_1", "now", "{}"))
    assert formats.for_name("qwen3-8b").name == "auto"
    assert answers(formats, "qwen3-8b", TextDelta(CALL)) == []


def family_of(model: str) -> str | None:
    """Return the family that the model's name shows."""
    found = find_format(model)
    return found.name if found else None


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("ibm-granite/granite-3.3-8b-instruct", "granite"),
        ("Step-3.5-Flash", "qwen3_coder"),
        ("inclusionAI/Ling-3.0-flash", "glm"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", "nemotron_nano"),
        ("DeepSeek-R1-0528-Qwen3-8B", "deepseek"),
        ("DeepSeek-V3.2-Exp", "deepseek"),
        ("granite-20b-functioncalling", "granite"),
        ("Qwen3.8-72B", "qwen3_coder"),
        ("qwen3:4b", "hermes"),
        ("baidu/ERNIE-4.5-21B-A3B-Thinking", "hermes"),
        ("XiaomiMiMo/MiMo-V2-Flash", "qwen3_coder"),
        ("PrimeIntellect/INTELLECT-3", "qwen3_coder"),
        ("tngtech/DeepSeek-TNG-R1T2-Chimera", "deepseek"),
        ("meetkai/functionary-medium-v3.1", "llama3"),
        ("zai-org/GLM-5.3-Flash", "glm"),
        ("naver-hyperclovax/HyperCLOVAX-SEED-Think-14B", "glm"),
        ("tencent/Hunyuan-4", "hunyuan_3"),
        ("tencent/Hunyuan-4B-Instruct", None),
        ("ai21labs/AI21-Jamba-1.7-Mini", "hunyuan_a13b"),
        ("stepfun-ai/Step-Audio-2-mini", "step3"),
        ("FreedomIntelligence/openPangu-Embedded-7B", "lfm2"),
        # Separators do not matter.
        ("gpt_oss_20b", "harmony"),
        ("GLM_4_6", "glm"),
        ("qwen3 coder 30b", "qwen3_coder"),
        # Names that only begin alike, and retrained models.
        ("gpt-5", None),
        ("glm-4-9b-chat", None),
        ("mimosa-7b", None),
        ("dolphin-mistral", None),
    ],
)
def test_a_models_family_is_found_by_its_name(model: str, name: str | None) -> None:
    assert family_of(model) == name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("phi4_mini", '<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>'),
        ("granite", '<tool_call>[{"name": "now", "arguments": {}}]'),
        ("minicpm", "<|tool_call_start|>\n```python\nnow()\n```\n<|tool_call_end|>"),
        ("llama4", '{"name": "now", "parameters": {}}<|eot|>'),
        ("llama3", "<function=now>{}</function><|eom_id|>"),
        ("deepseek_v3_2", '<function_calls>\n<invoke name="now">\n</invoke>\n</function_calls>'),
        ("hermes", '{"name": "now", "arguments": {}}'),
        ("hermes", "<tool_call>\n<function=now>\n</function>\n</tool_call>"),
        ("qwen3_coder", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'),
        ("glm", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'),
        ("glm", "<tool_call>now {}</tool_call>"),
        ("qwen3_coder", '<invoke name="now">\n</invoke>'),
        ("deepseek_v4", '<tool_calls>\n<invoke name="now">\n</invoke>\n</tool_calls>'),
        ("internlm2", '{"name": "now", "parameters": {}}'),
        ("gigachat3", 'function call\n{"name": "now", "arguments": {}}'),
        ("olmo3", '<function_calls>\n{"name": "now", "arguments": {}}\n</function_calls>'),
        ("llama3", "<|python_tag|><function=now>{}</function><|eom_id|>"),
        ("minimax_m3", '<tool_call>\n<invoke name="now">\n</invoke>\n</tool_call>'),
        ("gemma", "[now()]"),
        ("gemma", '{"name": "now", "parameters": {}}'),
    ],
)
def test_a_family_is_read_in_all_the_syntaxes_that_its_models_write(name: str, text: str) -> None:
    parsed = parse(text, [now.schema()], name)
    assert (parsed.content, [call.arguments for call in parsed.tool_calls]) == ("", [{}])


OF_OTHERS = {
    "hermes": [
        "[TOOL_CALLS]now[ARGS]{}",
        "<|python_tag|>now()",
        "Action: now\nAction Input: {}",
        '<minimax:tool_call>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    ],
    "qwen3_coder": ['{"name": "now", "arguments": {}}', "[now()]", "[TOOL_CALLS]now[ARGS]{}"],
    "glm": ['{"name": "now", "arguments": {}}', "[TOOL_CALLS]now[ARGS]{}"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in OF_OTHERS.items() for text in texts])
def test_another_familys_call_is_text(name: str, text: str) -> None:
    assert parse(text, [now.schema()], name).tool_calls == ()


def test_unmarked_calls_count_as_the_familys_syntax() -> None:
    formats = FormatChoice()
    assert len(answers(formats, "qwen2.5-7b", TextDelta('{"name": "now", "arguments": {}}'))) == 1
    assert formats.for_name("qwen2.5-7b").name == "hermes"
    with capture_logs() as logs:
        assert len(answers(formats, "qwen2.5-7b", TextDelta('{"name": "now", "arguments": {}}'))) == 1
    assert not [log for log in logs if log["event"] == "calls_in_another_format"]


# ----------------------------------------------------------------------------------------------- chat templates


QWEN = r'{{- "For each function call, return a json object within <tool_call></tool_call> XML tags:\n<tool_call>\n'
QWEN += r'{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}'

LINES = {
    "qwen 3": ("hermes", QWEN),
    "hermes": ("hermes", """{{- '{"name": <function-name>, "arguments": <args-dict>}\n' }}"""),
    "glm 4.6": (
        "glm",
        "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>",
    ),
    "deepseek 3.1": ("deepseek", "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name']}}"),
    "deepseek 3.2": (
        "deepseek_v3_2",
        '{%- set dsml_token = "｜DSML｜" -%}\n<{{ dsml_token }}function_calls>\n<{{ dsml_token }}invoke name="$NAME">',
    ),
    "deepseek 4": ("deepseek_v4", "{% set dsml = '｜DSML｜' %}{{- '<' + dsml + 'tool_calls>' -}}"),
    "kimi k3": ("kimi_k3", "{%- macro open_tag(tag, attrs=[]) -%}\n{{- '<|open|>' + tag -}}"),
    "llama 3.1": (
        "llama3",
        '{"name": function name, "parameters": dictionary of argument name and its value}',
    ),
    "llama 4": (
        "llama4",
        "{{- '<|header_start|>' + role }} {\"parameters\": dictionary of argument name and its value}",
    ),
    "hunyuan 3": ("hunyuan_3", "<tool_calls><tool_call>{name}<tool_sep><arg_key>{key}</arg_key></tool_calls>"),
    "hunyuan a13b": ("hunyuan_a13b", '<tool_calls>[{"name": "func_name1", "arguments": {}}]</tool_calls>'),
    "minimax m2": ("minimax_m2", "{%- set toolcall_begin_token   = '<minimax:tool_call>'         -%}"),
    "minimax m3": ("minimax_m3", "{%- set mark = ']<]minimax[>[' -%}"),
    "lfm 2": ("lfm2", '{%- set content = "<|tool_call_start|>[" + ns_tc.result + "]<|tool_call_end|>" + content -%}'),
    "granite 3": ("granite", "respond only with <|tool_call|> followed by a JSON list of tools used"),
    "phi 4 mini": ("phi4_mini", "{{- '<|tool_call|>' + (tool_call['function'] | tojson) + '<|/tool_call|>' -}}"),
    "step 3": ("step3", "{{- '<｜tool▁calls▁begin｜>' }}<steptml:invoke name="),
    "functionary 3.1": ("llama3", "{{ '<|python_tag|>' + tool_call['function']['arguments'] }}"),
    "olmo 3": ("olmo3", r"{{- \"\n<function_calls>\nget_weather(city='New York')\n</function_calls>\" }}"),
    "seed-oss": ("seed_oss", r"{%- set begin = '<seed:tool_call>' -%}{{ '\n<function=' + name + '>\n<parameter=' }}"),
    "gigachat 3": ("gigachat3", r"{%- set add_tokens = namespace(message_sep='<|message_sep|>\n\n') -%} function call"),
}


@pytest.mark.parametrize(("name", "line"), LINES.values(), ids=LINES.keys())
def test_a_template_decides_the_family_whatever_the_models_name(name: str, line: str) -> None:
    template = f"{{%- for message in messages %}}{{{{ message.content }}}}{{%- endfor %}}\n{line}\n"
    for model in ("my-model", "gpt-5", "qwen2.5-7b", "llama-3.1-8b"):
        found = find_format(model, template)
        assert found is not None
        assert (found.name, found.because, found.is_from_template) == (name, "its chat template", True)


def test_the_name_decides_if_a_template_has_words_of_several_families() -> None:
    template = "<｜tool▁calls▁begin｜> [TOOL_CALLS]"
    named = find_format("qwen3-8b", template)
    assert named is not None
    assert (named.name, named.because, named.is_from_template) == ("hermes", "its name", False)
    assert find_format("my-model", template) is None


def test_the_served_name_takes_precedence_over_other_names() -> None:
    found = find_format("mistral-small", "", ["Qwen/Qwen3-8B"])
    assert found is not None
    assert found.name == "mistral"
    other = find_format("assistant", "", ["opt/model", "Qwen/Qwen3-8B"])
    assert other is not None
    assert (other.name, other.because) == ("hermes", "its other name Qwen/Qwen3-8B")


MINIMAX_END = r"{%- if add_generation_prompt -%}{{- ']~b]ai' ~ '\n' ~ '<think>' ~ '\n' }}{%- endif -%}"
NEMOTRON_END = r"""{%- if add_generation_prompt -%}{%- if ns.enable_thinking is false -%}{{- '<think></think>' -}}
{%- else -%}{{- '<think>\n\n' -}}{%- endif -%}{%- endif -%}"""
GLM_END = r"""{%- if add_generation_prompt -%}<|assistant|>
{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}{%- endif -%}"""
QWEN_END = r"{{- '<think>' }}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"


@pytest.mark.parametrize(
    ("name", "template", "prompt", "opens"),
    [
        ("minimax_m2", MINIMAX_END, "", True),
        ("minimax_m2", MINIMAX_END.replace("<think>", "<think></think>"), "", None),
        ("glm", GLM_END, "", None),
        ("hermes", QWEN_END, "", None),
        ("hermes", "", "", None),
        ("nemotron_nano", NEMOTRON_END, "<SPECIAL_11>Assistant\n<think>\n\n", True),
        ("nemotron_nano", NEMOTRON_END, "<SPECIAL_11>Assistant\n<think></think>", False),
        ("kimi_k3", "", '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>', True),
        ("hermes", "", "<seed:think>", False),
    ],
)
def test_a_prompt_shows_whether_it_opens_the_thought(name: str, template: str, prompt: str, opens: bool | None) -> None:
    assert prompt_opens_thought(name, template, prompt) is opens


def test_a_thought_that_the_template_opens_is_a_thought_from_its_first_word() -> None:
    parser = StreamParser([], ["hermes"], model="my-model", prompt_opens=True)
    assert parser.feed("I think") == [ReasoningPiece("I think")]
    assert parser.feed("</think>\n\nTwo.") == [TextPiece("Two.")]


def test_the_template_takes_precedence_over_the_name_about_thoughts() -> None:
    parser = StreamParser([], ["minimax_m2"], model="MiniMax-M2", prompt_opens=False)
    assert parser.feed("Two.") == [TextPiece("Two.")]


@pytest.mark.parametrize("piece", ["{% set a = '", "{%- set ", "{{ a + ", "' + ", "add_generation_prompt {% if "])
def test_a_hostile_template_is_read_and_gives_no_result(piece: str) -> None:
    template = "{% set a = 'x' %}" + piece * (2**20 // len(piece))
    assert find_format("my-model", template) is None
    assert prompt_opens_thought("hermes", template) is None


# --------------------------------------------------------------------- `parse`, the function for other programs


SEARCH: dict[str, Any] = {
    "name": "search",
    "description": "Searches.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
    },
}
TOOLS = [{"type": "function", "function": SEARCH}]


def test_reasoning_content_and_calls_are_separated_in_any_format() -> None:
    text = '<think>Hm.</think>Let me see.\n<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>'
    call = ParsedCall("search", {"query": "a"})
    assert parse(text, TOOLS) == Parsed("Let me see.\n", "Hm.", (call,))
    assert parse(text, TOOLS, "rescue") == Parsed("Let me see.", "Hm.", (call,))
    assert parse(text, TOOLS, "native") == Parsed(text, "", ())


def test_repairs_are_reported() -> None:
    [call] = parse(
        "<tool_call>{\"name\": \"google\", \"arguments\": {'Query': 'a', 'limit': '5'}}</tool_call>", TOOLS
    ).tool_calls
    assert (call.name, call.arguments, call.error) == ("search", {"query": "a", "limit": 5}, None)
    assert "google" in call.repairs[0]
    assert len(call.repairs) >= 3


def test_a_broken_call_has_an_error_and_no_arguments() -> None:
    [call] = parse(
        '<tool_call>{"name": "search", "arguments": {"query": 5.5, "page": 1}}</tool_call>', TOOLS
    ).tool_calls
    assert call.arguments is None
    assert "page" in (call.error or "")


def test_tools_may_be_given_without_their_wrapper_and_without_parameters() -> None:
    tools: list[dict[str, Any]] = [SEARCH, {"name": "now"}]
    parsed = parse('Action: now\nAction Input: {}\nAction: search\nAction Input: {"query": "a"}', tools, "react")
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [("now", {}), ("search", {"query": "a"})]


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("minimax_m3", 'T<tool_call>T<invoke name="search">T<query>aT</query>T</invoke>T</tool_call>'),
        ("qwen3_coder", "<tool_call><function=search><parameter=query>a</parameter></function></tool_call>"),
    ],
)
def test_a_schema_without_types_of_its_properties_reads_texts(family: str, text: str) -> None:
    tools = [{"name": "search", "parameters": {"type": "object", "properties": {"query": True}}}]
    [call] = parse(text.replace("T<", "]<]minimax[>[<"), tools, family).tool_calls
    assert call == ParsedCall("search", {"query": "a"})


READ_BY = {
    '<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>': {"auto", "rescue", "xml", "hermes"},
    'Action: search\nAction Input: {"query": "a"}': {"auto", "rescue", "react"},
    'So: <tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>': {"rescue", "xml", "hermes"},
}
OF_TOOL_CALL = {one.name for one in ROWS if "<tool_call>" in one.openers}
"""The formats whose calls begin in the same way: what is no call of theirs behind that is refused."""


@pytest.mark.parametrize("text", READ_BY)
@pytest.mark.parametrize("name", get_args(ToolFormat))
def test_a_call_is_read_by_its_format_related_formats_and_rescue_only(name: str, text: str) -> None:
    parsed = parse(text, TOOLS, name)
    if READ_BY[text] & {name, *RELATED_FORMATS.get(name, ())}:
        assert [call.arguments for call in parsed.tool_calls] == [{"query": "a"}]
    elif "<tool_call>" in text and OF_TOOL_CALL & {name, *RELATED_FORMATS.get(name, ())}:
        assert [call.arguments for call in parsed.tool_calls] == [None]
    else:
        assert (parsed.content, parsed.tool_calls) == (text, ())


OF_A_FAMILY = [
    (
        "deepseek_v4",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">a'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    ("minicpm", '<tool_call>\n<function name="search"><param name="query">a</param></function>\n</tool_call>'),
    (
        "minimax_m2",
        '<invoke name="search">\n<parameter name="query">a</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
]
"""What a family's models write besides, by what its parsers in vLLM read, or NVIDIA's for its Llama Nemotron."""


@pytest.mark.parametrize(("name", "text"), OF_A_FAMILY)
def test_a_family_is_read_with_another_section_or_without_one_and_no_marker_is_left(name: str, text: str) -> None:
    parsed = parse(f"I look.\n\n{text}", TOOLS, name)
    assert (parsed.content, [call.arguments for call in parsed.tool_calls]) == ("I look.", [{"query": "a"}])


@pytest.mark.parametrize(("name", "marker"), [("minicpm", "<|tool_call_end|>"), ("glm", "</tool_call>")])
def test_fragments_of_a_familys_other_syntaxes_are_not_shown(name: str, marker: str) -> None:
    assert parse(f"It is noon.{marker}", TOOLS, name).content == "It is noon."


def test_an_unknown_format_is_refused_and_the_known_are_listed() -> None:
    with pytest.raises(ValueError, match="react, xml"):
        parse("", TOOLS, "morse")


def test_the_examples_of_the_packages_readme_run() -> None:
    readme = (Path(callboard_formats.__file__).parent / "README.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    exec("\n".join(examples), {})
