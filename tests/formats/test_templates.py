"""Detecting a model's syntax by its chat template. Each line is from the real template and identifies it."""

import pytest

from callboard_formats import ReasoningPiece, StreamParser, TextPiece
from callboard_formats.detection import find_format, prompt_opens_thought, spell_out

QWEN = r'{{- "For each function call, return a json object within <tool_call></tool_call> XML tags:\n<tool_call>\n'
QWEN += r'{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}'

LINES = {
    "qwen 3": ("hermes", QWEN),
    "hermes": ("hermes", """{{- '{"name": <function-name>, "arguments": <args-dict>}\n' }}"""),
    "qwen 3 coder": ("qwen3_coder", r"{{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}"),
    "glm 4.6": (
        "glm",
        "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>",
    ),
    "mistral": ("mistral", '{{- "[TOOL_CALLS] [" }}'),
    "deepseek 3.1": ("deepseek", "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name']}}"),
    "deepseek 3.2": (
        "deepseek_v3_2",
        '{%- set dsml_token = "｜DSML｜" -%}\n<{{ dsml_token }}function_calls>\n<{{ dsml_token }}invoke name="$NAME">',
    ),
    "deepseek 4": ("deepseek_v4", "{% set dsml = '｜DSML｜' %}{{- '<' + dsml + 'tool_calls>' -}}"),
    "kimi k2": ("kimi", "{{ '<|tool_calls_section_begin|>' }}"),
    "kimi k3": ("kimi_k3", "{%- macro open_tag(tag, attrs=[]) -%}\n{{- '<|open|>' + tag -}}"),
    "gpt-oss": ("harmony", '{{- "<|start|>assistant<|channel|>final<|message|>" }}'),
    "gemma 4": ("gemma", "{{- '<|tool_call>call:' + function['name'] + '{' -}}"),
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
    "command": ("command", "{{- '<|START_ACTION|>[' }}"),
    "olmo 3": ("olmo3", r"{{- \"\n<function_calls>\nget_weather(city='New York')\n</function_calls>\" }}"),
    "nemotron": ("nemotron_nano", "{{- '<TOOLCALL>[' -}}"),
    "seed-oss": ("seed_oss", r"{%- set begin = '<seed:tool_call>' -%}{{ '\n<function=' + name + '>\n<parameter=' }}"),
    "step 3": ("step3", "{{- '<｜tool▁calls▁begin｜>' }}<steptml:invoke name="),
    "gigachat 3": ("gigachat3", r"{%- set add_tokens = namespace(message_sep='<|message_sep|>\n\n') -%} function call"),
    "apertus": ("apertus", "{%- set tool_calls_token = '<|tools_prefix|>' -%}"),
    "longcat": ("longcat", "<longcat_tool_call>{function-name}\n<longcat_arg_key>{arg-key-1}</longcat_arg_key>"),
    "functionary 3.2": ("functionary", r"Respond in this format:\n>>>${recipient}\n${content}\nAvailable functions:"),
    "functionary 3.1": ("llama3", "{{ '<|python_tag|>' + tool_call['function']['arguments'] }}"),
    "solar open": ("solar_open", "{{- '<|tool_call:begin|>' + id + '<|tool_call:name|>' + name }}"),
    "solar open 2": ("solar_open_2", "{{- '<|tool_call:start|>' + name + '\\n' }}"),
    "muse glimmer": ("muse_glimmer", r"writing a \"<atem:function_calls>\" block like the following:"),
    "inkling": ("inkling", "{{- '<|content_invoke_tool_json|>' -}}"),
    "plamo 3": ("plamo_3", "{{- '<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>' }}"),
    "iquest q1": ("iquest", "{{- '<iquest_tool_call>' + tc.name }}"),
    "cwm": ("cwm", "<tool: function>"),
    "rwkv 7": ("rwkv", "**Tool Call:**"),
    "internlm 2": ("internlm2", "{{ '<|action_start|><|plugin|>' }}"),
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


def test_the_name_decides_if_a_template_has_no_familys_words() -> None:
    found = find_format("mistral-small", "{{ messages[0].content }} Answer with a function call as JSON.")
    assert found is not None
    assert (found.name, found.because) == ("mistral", "its name")


def test_the_served_name_takes_precedence_over_other_names() -> None:
    found = find_format("mistral-small", "", ["Qwen/Qwen3-8B"])
    assert found is not None
    assert found.name == "mistral"
    other = find_format("assistant", "", ["opt/model", "Qwen/Qwen3-8B"])
    assert other is not None
    assert (other.name, other.because) == ("hermes", "its other name Qwen/Qwen3-8B")


@pytest.mark.parametrize(
    ("template", "spelled"),
    [
        ("{% set a = '<x>' %}{{ a }}{{- a -}}", "{% set a = '<x>' %}<x><x>"),
        ("{%- set a = \"<x>\" -%}{{ '1' + a + '2' ~ a ~ \"3\" }}", '{%- set a = "<x>" -%}{{ \'1<x>2<x>3" }}'),
        ("{% set a = b %}{{ a }}", "{% set a = b %}{{ a }}"),
        ("{{ a }}", "{{ a }}"),
    ],
)
def test_text_variables_are_replaced_by_their_values(template: str, spelled: str) -> None:
    assert spell_out(template) == spelled


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
        ("nemotron_nano", NEMOTRON_END, "", None),
        ("glm", GLM_END, "", None),
        ("hermes", QWEN_END, "", None),
        ("hermes", "", "", None),
        ("hermes", "{{ messages }} <think>", "", None),
        ("nemotron_nano", NEMOTRON_END, "<SPECIAL_11>Assistant\n<think>\n\n", True),
        ("nemotron_nano", NEMOTRON_END, "<SPECIAL_11>Assistant\n<think></think>", False),
        ("minimax_m2", MINIMAX_END, "]~b]ai\n", False),
        ("seed_oss", "", "<seed:bos>assistant\n<seed:think>", True),
        ("kimi_k3", "", '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>', True),
        ("hermes", "", "<seed:think>", False),
    ],
)
def test_a_prompt_shows_whether_it_opens_the_thought(name: str, template: str, prompt: str, opens: bool | None) -> None:
    assert prompt_opens_thought(name, template, prompt) is opens


def read(text: str, model: str, *, prompt_opens: bool) -> tuple[str, str]:
    parser = StreamParser([], ["hermes"], model=model, prompt_opens=prompt_opens)
    pieces = [*parser.feed(text), *parser.finish()]
    thought = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece))
    return thought, "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


def test_a_thought_that_the_template_opens_is_a_thought_from_its_first_word() -> None:
    parser = StreamParser([], ["hermes"], model="my-model", prompt_opens=True)
    assert parser.feed("I think") == [ReasoningPiece("I think")]
    assert read("I think\n</think>\n\nTwo.", "my-model", prompt_opens=True) == ("I think", "Two.")


def test_an_answer_without_a_thought_is_complete_if_the_endpoint_removes_thoughts() -> None:
    _, text = read("Two.", "my-model", prompt_opens=True)
    assert text == "Two."


def test_the_template_takes_precedence_over_the_name_about_thoughts() -> None:
    parser = StreamParser([], ["minimax_m2"], model="MiniMax-M2", prompt_opens=False)
    assert parser.feed("Two.") == [TextPiece("Two.")]


@pytest.mark.parametrize("piece", ["{% set a = '", "{%- set ", "{{ a + ", "' + ", "add_generation_prompt {% if "])
def test_a_hostile_template_is_read_and_gives_no_result(piece: str) -> None:
    template = "{% set a = 'x' %}" + piece * (2**20 // len(piece))
    assert find_format("my-model", template) is None
    assert prompt_opens_thought("hermes", template) is None
