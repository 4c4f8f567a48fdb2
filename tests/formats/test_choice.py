"""The choice of the format for a model."""

from typing import get_args

import pytest
from structlog.testing import capture_logs

from callboard._formats import FormatChoice, ToolFormat
from callboard.calls import ToolCall, tool
from callboard.models import ModelDelta, TextDelta, ToolCallDelta
from callboard_formats import parse
from callboard_formats.detection import find_format
from callboard_formats.formats import list_formats


@pytest.mark.parametrize("name", [name for name in get_args(ToolFormat) if name != "auto"])
def test_a_configured_format_is_used_for_every_model(name: ToolFormat) -> None:
    assert FormatChoice(name, ["*"]).for_name("anything").name == name


@pytest.mark.parametrize(
    ("model", "name"),
    [("gpt-5", "auto"), ("meta/Llama-2-13B-chat", "react"), ("llama-3.1-8b", "auto"), ("", "auto")],
)
def test_auto_means_react_for_listed_models(model: str, name: str) -> None:
    assert FormatChoice("auto", ("*llama-2*", "phi-2")).for_name(model).name == name
    assert FormatChoice().for_name(model).name == "auto"


def test_every_syntax_can_be_chosen() -> None:
    assert set(list_formats()) == set(get_args(ToolFormat)) - {"auto", "native", "rescue"}


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


def test_a_found_syntax_is_logged_once() -> None:
    formats = FormatChoice()
    with capture_logs() as logs:
        for _ in range(3):
            answers(formats, "qwen3-8b", TextDelta(CALL))
    found = [log for log in logs if log["event"] == "format_found"]
    assert [(log["model"], log["format"], log["because"]) for log in found] == [("qwen3-8b", "hermes", "its name")]


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
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        ("qwen2.5:14b", "hermes"),
        ("zai-org/GLM-4.6", "glm"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek_v3_2"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek"),
        ("moonshotai/Kimi-K2-Instruct", "kimi"),
        ("Kimi-K3", "kimi_k3"),
        ("MiniMaxAI/MiniMax-M2.1", "minimax_m2"),
        ("MiniMax-M3", "minimax_m3"),
        ("openai/gpt-oss-20b", "harmony"),
        ("mistral-small", "mistral"),
        ("ibm-granite/granite-3.3-8b-instruct", "granite"),
        ("granite4:tiny", "hermes"),
        ("LiquidAI/LFM2-1.2B", "lfm2"),
        ("meituan-longcat/LongCat-Flash-Chat", "longcat"),
        ("stepfun-ai/step3", "step3"),
        ("Step-3.5-Flash", "qwen3_coder"),
        ("inclusionAI/Ling-3.0-flash", "glm"),
        ("allenai/Olmo-3-7B-Think", "olmo3"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron_nano"),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", "seed_oss"),
        ("swiss-ai/Apertus-8B-Instruct", "apertus"),
        ("llama4:scout", "llama4"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", "nemotron_nano"),
        ("DeepSeek-R1-0528-Qwen3-8B", "deepseek"),
        ("qwen2.5-coder:7b", "hermes"),
        ("DeepSeek-V3.2-Exp", "deepseek"),
        ("granite-20b-functioncalling", "granite"),
        ("moonshotai/Kimi-K3", "kimi_k3"),
        ("moonshotai/Kimi-K2.5", "kimi"),
        ("Qwen/Qwen3.5-9B", "qwen3_coder"),
        ("Qwen3.6-35B-A3B", "qwen3_coder"),
        ("Qwen3.8-72B", "qwen3_coder"),
        ("Qwen/Qwen3-8B", "hermes"),
        ("qwen3:4b", "hermes"),
        ("openbmb/MiniCPM3-4B", "minicpm"),
        ("baidu/ERNIE-4.5-21B-A3B-Thinking", "hermes"),
        ("XiaomiMiMo/MiMo-7B-RL", "hermes"),
        ("XiaomiMiMo/MiMo-V2-Flash", "qwen3_coder"),
        ("HuggingFaceTB/SmolLM3-3B", "hermes"),
        ("LGAI-EXAONE/EXAONE-4.0-32B", "hermes"),
        ("arcee-ai/AFM-4.5B", "hermes"),
        ("PrimeIntellect/INTELLECT-3", "qwen3_coder"),
        ("tngtech/DeepSeek-TNG-R1T2-Chimera", "deepseek"),
        ("meetkai/functionary-small-v3.2", "functionary"),
        ("meetkai/functionary-medium-v3.0", "functionary"),
        ("meetkai/functionary-medium-v3.1", "llama3"),
        ("upstage/Solar-Open-100B", "solar_open"),
        ("upstage/Solar-Open-2", "solar_open_2"),
        ("Muse-Glimmer", "muse_glimmer"),
        ("thinkingmachines/Inkling", "inkling"),
        ("pfnet/plamo-3-nict-8b", "plamo_3"),
        ("IQuestLab/IQuest-Coder-V2-40B", "iquest"),
        ("IQuest-Q1", "iquest"),
        ("facebook/cwm", "cwm"),
        ("BlinkDL/rwkv7-g1", "rwkv"),
        ("zai-org/GLM-5.3-Flash", "glm"),
        ("poolside/Laguna-XS.2", "glm"),
        ("naver-hyperclovax/HyperCLOVAX-SEED-Think-14B", "glm"),
        ("iflytek/Spark-3", "glm"),
        ("tencent/Hunyuan-4", "hunyuan_3"),
        ("tencent/Hy4-Instruct", "hunyuan_3"),
        ("tencent/Hunyuan-A13B-Instruct", "hunyuan_a13b"),
        ("tencent/Hunyuan-4B-Instruct", None),
        ("ai21labs/AI21-Jamba-1.7-Mini", "hunyuan_a13b"),
        ("wb/BerryLM-OS", "qwen3_coder"),
        ("Aleph-Alpha/Kolibri-1", "hermes"),
        ("stepfun-ai/Step-Audio-2-mini", "step3"),
        ("FreedomIntelligence/openPangu-Embedded-7B", "lfm2"),
        ("openPangu-2.0", "lfm2"),
    ],
)
def test_a_models_family_is_found_by_its_name(model: str, name: str | None) -> None:
    assert family_of(model) == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt_oss_20b", "harmony"),
        ("deepseek_r1", "deepseek"),
        ("kimi_k2", "kimi"),
        ("GLM_4_6", "glm"),
        ("minimax_m2", "minimax_m2"),
        ("seed_oss", "seed_oss"),
        ("Llama_4_Scout", "llama4"),
        ("phi_4_mini", "phi4_mini"),
        ("Qwen3_8B", "hermes"),
        ("qwen3 coder 30b", "qwen3_coder"),
    ],
)
def test_separators_in_a_models_name_do_not_matter(model: str, name: str) -> None:
    assert family_of(model) == name


@pytest.mark.parametrize("model", ["gpt-5", "glm-4-9b-chat", "starling-lm-7b", "Starling-2", "mimosa-7b", "zephy-3"])
def test_an_unknown_name_has_no_family(model: str) -> None:
    assert family_of(model) is None


@pytest.mark.parametrize("model", ["dolphin-mistral", "mistral-openorca"])
def test_a_retrained_model_is_not_of_the_family_that_its_name_begins_with(model: str) -> None:
    assert family_of(model) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("phi4_mini", '<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>'),
        ("granite", '<tool_call>[{"name": "now", "arguments": {}}]'),
        ("granite", '<function_call> {"name": "now", "arguments": {}}'),
        ("minicpm", "<|tool_call_start|>\n```python\nnow()\n```\n<|tool_call_end|>"),
        ("llama4", "[now()]"),
        ("llama4", '{"name": "now", "parameters": {}}<|eot|>'),
        ("llama3", "<function=now>{}</function><|eom_id|>"),
        ("deepseek_v3_2", '<function_calls>\n<invoke name="now">\n</invoke>\n</function_calls>'),
        ("hermes", '{"name": "now", "arguments": {}}'),
        ("hermes", '```json\n{"name": "now", "arguments": {}}\n```'),
        ("hermes", '{"name": "now", "arguments": {}}\n</tool_call>'),
        ("hermes", "<tool_call>\n<function=now>\n</function>\n</tool_call>"),
        ("hermes", "<function=now></function>"),
        ("qwen3_coder", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'),
        ("glm", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'),
        ("glm", "<tool_call>now {}</tool_call>"),
        ("glm", "<function=now></function>"),
        ("glm", '<function_calls>\n<invoke name="now">\n</invoke>\n</function_calls>'),
        ("qwen3_coder", '<invoke name="now">\n</invoke>'),
        ("deepseek_v4", '<tool_calls>\n<invoke name="now">\n</invoke>\n</tool_calls>'),
        ("command", '[{"tool_call_id": "0", "tool_name": "now", "parameters": {}}]'),
        ("internlm2", '{"name": "now", "parameters": {}}'),
        ("gigachat3", 'function call\n{"name": "now", "arguments": {}}'),
        ("olmo3", '<function_calls>\n{"name": "now", "arguments": {}}\n</function_calls>'),
        ("llama3", "<|python_tag|><function=now>{}</function><|eom_id|>"),
        ("minimax_m3", '<tool_call>\n<invoke name="now">\n</invoke>\n</tool_call>'),
        ("gemma", "[now()]"),
        ("gemma", '{"name": "now", "parameters": {}}'),
        ("gemma", '```json\n{"name": "now", "parameters": {}}\n```'),
        ("mistral", '[{"name": "now", "arguments": {}}]'),
        ("granite", '[{"name": "now", "arguments": {}}]'),
        ("lfm2", "[now()]"),
        ("phi4_mini", '[{"name": "now", "arguments": {}}]'),
        ("llama3", '```json\n{"name": "now", "parameters": {}}\n```'),
    ],
)
def test_a_family_is_read_in_all_the_syntaxes_that_its_models_write(name: str, text: str) -> None:
    parsed = parse(text, [now.schema()], [name])
    assert (parsed.content, [call.arguments for call in parsed.tool_calls]) == ("", [{}])


OF_OTHERS = {
    "hermes": [
        "[TOOL_CALLS]now[ARGS]{}",
        "<|python_tag|>now()",
        "<|tool_call_start|>[now()]<|tool_call_end|>",
        "Action: now\nAction Input: {}",
        "```Action: now\nAction Input: {}\n```",
        "```tool_code\nnow()\n```",
        '<minimax:tool_call>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    ],
    "gemma": ['<tool_call>{"name": "now", "arguments": {}}</tool_call>', "<|python_tag|>now()"],
    "qwen3_coder": ['{"name": "now", "arguments": {}}', "[now()]", "[TOOL_CALLS]now[ARGS]{}"],
    "mistral": ['<tool_call>{"name": "now", "arguments": {}}</tool_call>', "<function=now></function>"],
    "glm": ['{"name": "now", "arguments": {}}', "[TOOL_CALLS]now[ARGS]{}"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in OF_OTHERS.items() for text in texts])
def test_another_familys_call_is_text(name: str, text: str) -> None:
    assert parse(text, [now.schema()], [name]).tool_calls == ()


@pytest.mark.parametrize("name", ["hermes", "gemma", "mistral"])
@pytest.mark.parametrize(
    "text",
    [
        'You get `{"name": "now", "arguments": {}}` from it.',
        'For example:\n\n```json\n{"name": "now", "arguments": {}}\n```\n\nThat would tell the time.',
        '{"name": "someone", "arguments": {}}',
        '{"name": "now", "age": 5}',
    ],
)
def test_data_and_examples_are_not_read_as_unmarked_calls(name: str, text: str) -> None:
    parsed = parse(text, [now.schema()], [name])
    assert (parsed.content, parsed.tool_calls) == (text, ())


def test_unmarked_calls_count_as_the_familys_syntax() -> None:
    formats = FormatChoice()
    assert len(answers(formats, "qwen2.5-7b", TextDelta('{"name": "now", "arguments": {}}'))) == 1
    assert formats.for_name("qwen2.5-7b").name == "hermes"
    with capture_logs() as logs:
        assert len(answers(formats, "qwen2.5-7b", TextDelta('{"name": "now", "arguments": {}}'))) == 1
    assert not [log for log in logs if log["event"] == "calls_in_another_format"]
