r"""The table of syntaxes: one row for each syntax that can be described as data.

In patterns, a blank matches any amount of white space or none, and `\x20` matches one blank.
"""

from dataclasses import replace

from callboard_formats.row import NAME, THINK, Row
from callboard_formats.syntax import Tags, TextKind

_IDENTIFIER = r"(?P<name>[A-Za-z_][\w.:-]{0,127}+)"
_NAME_IN_QUOTES = r"[\"']?" + NAME + r"[\"']?"
_KEY_IN_QUOTES = r"[\"']?(?P<key>[^<>\"'=\s]{1,128})[\"']?"
_PARAMETER = (
    rf"<parameter(?:\s{{1,8}}name)? = {_KEY_IN_QUOTES}(?:\s{{1,8}}string = [\"']?(?P<type>true|false)[\"']?)? >"
)

_DEEPSEEK_BEGIN = r"<[｜|]tool[▁_\x20]call[▁_\x20]begin[｜|]>"
_DEEPSEEK_SEPARATOR = r"<[｜|]tool[▁_\x20]sep[｜|]>"


def _spell_deepseek_tokens(*words: str) -> tuple[str, ...]:
    """Return the tokens in all spellings except with ASCII bars and underscores, because those are Kimi's tokens."""
    spellings = (("｜", "▁"), ("｜", "_"), ("｜", "\x20"), ("|", "▁"))
    return tuple(f"<{bar}{word.replace('_', gap)}{bar}>" for word in words for bar, gap in spellings)


HERMES = Row(
    name="hermes",
    title="Hermes, Qwen 2.5 and 3, Granite 4, Ling 2",
    source=(
        "https://github.com/NousResearch/Hermes-Function-Calling",
        "https://huggingface.co/Qwen/Qwen3-8B (chat template)",
    ),
    body="json",
    openers=("<tool_call>",),
    head="<tool_call>",
    end="</tool_call>",
    reasoning=(THINK, Tags("<scratch_pad>", "</scratch_pad>")),
    stops=("<tool_response>",),
    markers=("</tool_call>",),
    models=(
        r"hermes",
        r"(?<!deepseek.*)qwen-?2[.-]5",
        r"(?<!deepseek.*)qwen-?3(?!.*coder)(?![.-]?[5-9](?!\d*b))",
        r"qwq",
        r"granite-?4",
        r"(?<![a-z])(ling|ring)-?(lite|mini|flash|1t|2(?![.-]?6))",
        r"ernie-?4[.-]5",
        r"(?<![a-z])mimo-?(7b|vl)",
        r"smollm-?3",
        r"exaone-?4",
        r"afm-?4[.-]5",
        # https://github.com/Aleph-Alpha/aleph-alpha-inference registers Hermes' parser for it.
        r"kolibri-?1",
    ),
    # Qwen: the chat templates of Qwen/QwQ-32B and Qwen/Qwen3-235B-A22B-Thinking-2507 at https://huggingface.co. Ring 2:
    # https://github.com/modelscope/ms-swift/blob/main/swift/template/templates/llm.py. ERNIE: `baidu.py` there, and
    # https://docs.vllm.ai/en/v0.11.2/api/vllm/reasoning/ernie45_reasoning_parser/. Qwen 3 and Ring 2.5 are left out,
    # because they write the opening tag themselves.
    prompt_opens=(
        r"qwq",
        r"qwen-?3.*thinking",
        r"(?<![a-z])ring-?(lite|mini|flash|1t|2(?![.-]?[5-9]))",
        r"ernie-?4[.-]5.*thinking",
    ),
    template=("<args-json-object>", "<args-dict>"),
)
QWEN3_CODER = Row(
    name="qwen3_coder",
    title="Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5",
    source=("https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct (chat template)",),
    body="tags",
    openers=("<tool_call>", "<function=", "<function name"),
    section="<tool_call>",
    section_end="</tool_call>",
    head=(
        rf"<function(?:= (?:{_NAME_IN_QUOTES} >|>(?= <parameter))"
        # MiniCPM's head is `<function name=…>` as well. The text behind it distinguishes them.
        rf"|\s{{1,8}}name = {_NAME_IN_QUOTES} >(?= <parameter|</function>))"
    ),
    end="</function>",
    key=_PARAMETER,
    value_end="</parameter>",
    stops=("<tool_response>",),
    models=(
        r"qwen-?3.*coder",
        r"(?<!deepseek.*)qwen-?3[.-]?[5-9](?!\d*b)",
        r"nemotron-?3",
        r"step-?3[.-]?[57]",
        r"mimo-?v2",
        r"intellect-?3",
        # https://github.com/vllm-project/vllm/blob/main/vllm/parser/berrylm.py
        r"(?<![a-z])berry-?lm",
    ),
    # https://docs.vllm.ai/en/v0.20.1/api/vllm/reasoning/qwen3_reasoning_parser/ (Qwen3.5 and later),
    # https://github.com/ggml-org/llama.cpp/blob/master/models/templates/StepFun3.7-Flash.jinja,
    # https://github.com/ggml-org/llama.cpp/blob/master/models/templates/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja
    prompt_opens=(
        r"(?<!deepseek.*)qwen-?3[.-]?[5-9](?!\d*b)(?!.*coder)",
        r"nemotron-?3",
        r"step-?3[.-]?[57]",
        r"(?<![a-z])berry-?lm",
    ),
    template=("<function=", "<parameter="),
)
GLM = Row(
    name="glm",
    title="GLM 4.5 and later, Ling 3",
    source=("https://huggingface.co/zai-org/GLM-4.6 (chat template)",),
    body="tags",
    openers=("<tool_call>",),
    # Calls without arguments may have a stray tag.
    head=(
        r"<tool_call> (?:(?=<arg_key>)"
        rf"|{_IDENTIFIER} (?:(?=<arg_key>|</tool_call>)|</arg_value> (?=</tool_call>)))"
    ),
    end="</tool_call>",
    # Some models write a tag of the key twice, or omit the closing tag.
    key="(?:<arg_key> ){1,2}(?P<key>[^<]{1,128})(?:</arg_key> ){0,2}<arg_value>",
    value_end="</arg_value>",
    stops=("<|observation|>", "<tool_response>", "<|user|>"),
    markers=("<|begin_of_box|>", "<|end_of_box|>"),
    # Ring 2.6: https://github.com/sgl-project/sglang/pull/25366. The others: poolside_v1_tool_parser.py,
    # hyperclovax_seed_think_tool_parser.py and spark3_tool_parser.py in
    # https://github.com/vllm-project/vllm/tree/main/vllm/tool_parsers
    models=(
        r"glm-?(4[.-][5-9](?!\d*b)|[5-9])",
        r"(?<![a-z])ling-?3",
        r"(?<![a-z])(ling|ring)-?2[.-]?6",
        r"(?<![a-z])laguna",
        r"hyperclova-?x.*think",
        r"(?<![a-z])spark-?3",
    ),
    # https://huggingface.co/zai-org/GLM-4.7/blob/main/chat_template.jinja, https://ollama.com/frob/glm-5 (template),
    # https://docs.rs/crate/llama-cpp-sys-2/0.1.157/source/llama.cpp/common/parsers/ling3.cpp. GLM 4.5 and 4.6
    # write the opening tag themselves.
    prompt_opens=(r"glm-?(4[.-][7-9](?!\d*b)|[5-9])", r"(?<![a-z])ling-?3"),
    template=("<arg_key>",),
)
GLM_JSON = replace(
    GLM,
    title="GLM that writes JSON",
    source=("https://github.com/ml-explore/mlx-lm/issues/792",),
    body="json",
    head=rf"<tool_call> {_IDENTIFIER} (?=\{{)",
)
GLM_FLASH = replace(
    GLM,
    title="GLM 5.3 Flash",
    source=("https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/glm53_flash_detector.py",),
    body="json",
    head=rf"<tool_call> (?:[\w.-]{{1,128}}+/)?{_IDENTIFIER} > (?=\{{)",
)
MISTRAL = Row(
    name="mistral",
    title="Mistral (v11 and later), Magistral, Devstral",
    source=("https://docs.mistral.ai/capabilities/function_calling", "https://github.com/mistralai/mistral-common"),
    body="json",
    openers=("[TOOL_CALLS]",),
    head=(
        rf"\[TOOL_CALLS\] (?:(?=[\[{{])|{_IDENTIFIER} "
        r"(?:\[CALL_ID\] [\w-]{0,64}+ )?(?:\[ARGS\] (?=\S)|(?=[^\s\[])))"
    ),
    end="",
    name_alone=True,
    reasoning=(Tags("[THINK]", "[/THINK]"), THINK),
    stops=("[TOOL_RESULTS]", "[INST]", "</s>[INST]", "</s> [INST]"),
    markers=("[/TOOL_CALLS]", "[/TOOL_RESULTS]", "[/AVAILABLE_TOOLS]"),
    models=(
        r"(?<!dolphin.*)mistral(?!.*orca)",
        r"mixtral",
        r"ministral",
        r"magistral",
        r"devstral",
        r"codestral",
        r"pixtral",
    ),
    template=("[TOOL_CALLS]",),
)
DEEPSEEK = Row(
    name="deepseek",
    title="DeepSeek V3, R1, V3.1",
    source=("https://huggingface.co/deepseek-ai/DeepSeek-V3.1 (chat template)",),
    body="json",
    # Some servers write the tokens in ASCII. The ASCII opener of a call is left out, because it is Kimi's token.
    openers=(*_spell_deepseek_tokens("tool_calls_begin", "tool_call_begin"), "<|tool_calls_begin|>"),
    section=r"<[｜|]tool[▁_\x20]calls[▁_\x20]begin[｜|]>",
    section_end=r"<[｜|]tool[▁_\x20]calls[▁_\x20]end[｜|]>",
    head=(
        rf"{_DEEPSEEK_BEGIN} (?:function {_DEEPSEEK_SEPARATOR} (?P<name>[^\s`{{}}<>]{{1,128}})(?= [{{`]|[\r\n])"
        rf"|(?!function[\s<])(?P<name>[^\s`{{}}<>]{{1,128}}) {_DEEPSEEK_SEPARATOR}"
        rf"|(?P<name>[^\s`{{}}<>]{{1,128}})(?= [{{`]))"
    ),
    end=r"<[｜|]tool[▁_\x20]call[▁_\x20]end[｜|]>",
    stops=("<｜tool▁outputs▁begin｜>", "<｜tool▁output▁begin｜>", "<｜User｜>", "<｜end▁of▁sentence｜>"),
    markers=_spell_deepseek_tokens(
        "tool_calls_end", "tool_call_end", "tool_sep", "tool_outputs_begin", "tool_outputs_end", "tool_output_begin",
        "tool_output_end",
    ),
    models=(r"deepseek-?(v3(?![.-]?2)|v3[.-]?2.*exp|r1|chat|reasoner|tng-r1)",),
    # https://github.com/ggml-org/llama.cpp/blob/master/models/templates/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja;
    # R1-0528 writes the opening tag itself, and V3.1 thinks only on request, so they are left out.
    prompt_opens=(r"deepseek-?r1(?!.*0528)",),
    template=("<｜tool▁calls▁begin｜>",),
)  # fmt: skip
KIMI = Row(
    name="kimi",
    title="Kimi K2",
    source=("https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/docs/tool_call_guidance.md",),
    body="json",
    openers=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>"),
    section=r"<\|tool_calls?_section_begin\|>",
    section_end=r"<\|tool_calls?_section_end\|>",
    head=(
        # Without the colon the number may belong to the name, so the name is looked up with it.
        r"<\|tool_call_begin\|> (?:functions\.(?P<name>[^\s<{]{1,128}?):\d+|(?P<name>[^\s<{]{1,128}?)(?::\d+)?) "
        r"(?:<\|tool_call_argument_begin\|>|(?=\{|<\|tool_calls?_(?:end|begin|section)))"
    ),
    end=r"<\|tool_call_end\|>",
    reasoning=(THINK, Tags("◁think▷", "◁/think▷")),
    stops=("<|im_end|>", "<|im_user|>", "<|im_system|>"),
    markers=(
        "<|tool_calls_section_end|>", "<|tool_call_section_end|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
    ),
    models=(r"kimi-?(k2|dev|vl|linear)", r"^moonshot(?!.*k3)"),
    # https://huggingface.co/moonshotai/Kimi-K2.5 (chat template); K2 Thinking writes the opening tag itself.
    prompt_opens=(r"kimi-?k2[.-]?[5-9](?!\d)",),
    template=("<|tool_calls_section_begin|>",),
)  # fmt: skip
GEMMA_3 = Row(
    name="gemma",
    title="Gemma 3",
    source=("https://ai.google.dev/gemma/docs/capabilities/function-calling",),
    body="python",
    openers=("```tool_code",),
    head=r"```tool_code[ \t]{0,9}\r?\n".replace(" ", r"\x20"),
    end=r"(?<=\n)[\x20\t]{0,9}```[\x20\t]{0,9}\r?\n",
    stops=("```tool_output", "<end_of_turn>"),
    models=(r"gemma-?[23]",),
    template=("```tool_code",),
)
GEMMA = Row(
    name="gemma",
    title="FunctionGemma, Gemma 4",
    source=("https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices",),
    body="escaped",
    openers=("<start_function_call>", "<|tool_call>"),
    head=rf"(?:<start_function_call>|<\|tool_call>) (?::? call)?: {NAME} (?=[{{(])",
    end=r"<end_function_call>|<tool_call\|>|<turn\|>",
    reasoning=(Tags("<|channel>thought", "<channel|>"), THINK),
    stops=("<start_function_response>", "<|tool_response>"),
    markers=(
        "<tool_call|>",
        "<turn|>",
        "<|tool_response>",
        "<tool_response|>",
        "<end_function_call>",
        "<end_function_response>",
    ),
    models=(r"functiongemma", r"gemma-?4"),
    template=("<start_function_call>", "<|tool_call>"),
)
LLAMA3 = Row(
    name="llama3",
    title="Llama 3.1 to 4, marked",
    source=("https://github.com/meta-llama/llama-models/blob/main/models/llama3_1/prompt_format.md",),
    body="json",
    openers=("<|python_tag|>",),
    head=r"<\|python_tag\|> (?=\{ [\"']|\[ [{\]])",
    end=r"<\|eom_id\|>|<\|eot_id\|>",
    stops=("<|eom_id|>", "<|start_header_id|>ipython"),
    # https://github.com/MeetKai/functionary/blob/main/functionary/prompt_template/jinja_templates/v3-llama3.1.txt
    models=(r"llama-?3(?!.*nemotron.*v1[.-]?5)", r"functionary.*v?3[.-]?1(?!\d)"),
    template=("<|python_tag|>", "dictionary of argument name and its value"),
)
LLAMA3_TAGGED = Row(
    name="llama3",
    title="Llama 3.1, tagged",
    source=LLAMA3.source,
    body="json",
    openers=("<|python_tag|>", "<function="),
    head=rf"(?:<\|python_tag\|> )?<function= {_NAME_IN_QUOTES} >(?= \{{)",
    end="</function>",
)

XML_JSON = Row(
    name="xml",
    title="XML, as it is asked for",
    source=("https://github.com/NousResearch/Hermes-Function-Calling",),
    body="json",
    openers=("<tool_call", "<function_call"),
    head=rf"<(?:tool|function)_calls?(?:\s{{1,8}}name = {_NAME_IN_QUOTES})? > (?=[\[{{`\"']|</)",
    end="</(?:tool|function)_calls?>",
    stops=("<tool_response", "<tool_result", "<function_result"),
    reasoning=(THINK, Tags("<thinking>", "</thinking>")),
    markers=(
        "</tool_calls>", "</function_call>", "</function_calls>", "</tool_response>", "</tool_result>",
        "</tool_results>", "</function_response>",
    ),
)  # fmt: skip
XML_TAGS = Row(
    name="xml",
    title="XML with a tag for each argument",
    source=("https://docs.anthropic.com/en/docs/build-with-claude/tool-use",),
    body="tags",
    openers=("<tool_call", "<function_call", "<function=", "<function name", "<invoke name"),
    section="<(?:tool|function)_calls? >",
    section_end="</(?:tool|function)_calls?>",
    head=rf"<(?:function|invoke)(?:\s{{1,8}}name)? = {_NAME_IN_QUOTES} >",
    end="</(?:function|invoke)>",
    key=_PARAMETER,
    value_end="</parameter>",
    stops=("<tool_response", "<tool_result", "<function_result"),
)


def _dsml(
    name: str,
    title: str,
    source: str,
    *,
    word: str,
    section: str,
    gap: str = "",
    models: tuple[str, ...],
    opens: tuple[str, ...] = (),
) -> Row:
    """Return a row of DeepSeek's markup language, which GigaChat uses as well.

    Some models write other bars than their template contains, or two bars. `opens` are the row's `prompt_opens`.
    """
    bar = "[｜|‖]{1,2}"
    mark = f"{bar}{word}{bar}{gap}"
    space = " " if gap else ""
    tags = [f"{written}{word}{written}{space}" for written in ("｜", "|", "｜｜", "‖")]
    return Row(
        name=name,
        title=title,
        source=(source,),
        body="tags",
        openers=tuple(f"<{tag}{one}" for tag in tags for one in (f"{section}>", "invoke")),
        section=f"<{mark}{section}>",
        section_end=f"</{mark}{section}>",
        # https://github.com/sgl-project/sglang/issues/40236
        head=rf"<{mark}invoke\s{{1,9}}name = {_NAME_IN_QUOTES} (?P<closed>/)?>",
        end=f"</{mark}invoke>",
        key=rf"<{mark}parameter\s{{1,9}}name = {_KEY_IN_QUOTES}(?:\s{{1,9}}string = [\"'](?P<type>true|false)[\"'])? >",
        value_end=f"</(?:{mark})?parameter>",
        exact=True,
        prompt_opens=opens,
        stops=("<｜end▁of▁sentence｜>", "<｜User｜>", "<function_results>", "<tool_result>"),
        markers=tuple(f"</{tag}{one}>" for tag in tags for one in (section, "invoke", "parameter")),
        models=models,
        template=(f"｜{word}｜{space}{section}",),
    )


DEEPSEEK_V3_2 = _dsml(
    "deepseek_v3_2",
    "DeepSeek V3.2",
    "https://huggingface.co/deepseek-ai/DeepSeek-V3.2/blob/main/encoding/encoding_dsv32.py",
    word="DSML",
    section="function_calls",
    models=(r"deepseek-?v3[.-]?2(?!.*exp)",),
    # https://github.com/ggml-org/llama.cpp/blob/master/models/templates/DeepSeek-V3.2.jinja
    opens=(r"deepseek-?v3[.-]?2(?!.*exp)",),
)
DEEPSEEK_V4 = _dsml(
    "deepseek_v4",
    "DeepSeek V4",
    "https://github.com/vllm-project/vllm/blob/main/vllm/parser/deepseek_v4.py",
    word="DSML",
    section="tool_calls",
    models=(r"deepseek-?v4(?![.-]?1)",),
    opens=(r"deepseek-?v4(?![.-]?1)",),
)
DEEPSEEK_V4_1 = _dsml(
    "deepseek_v4_1",
    "DeepSeek V4.1",
    "https://github.com/vllm-project/vllm/blob/main/vllm/parser/deepseek_v41.py",
    word="DSML",
    section="calls",
    gap=r"\x20",
    models=(r"deepseek-?v4[.-]?1",),
    opens=(r"deepseek-?v4[.-]?1",),
)
GIGACHAT_3_5 = _dsml(
    "gigachat3",
    "GigaChat 3.5",
    "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/GigaChat3.5.jinja",
    word="GCML",
    section="tool_calls",
    models=(r"gigachat-?3[.-]?5",),
)
GIGACHAT_3 = Row(
    name="gigachat3",
    title="GigaChat 3",
    source=(
        "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/GigaChat3-10B-A1.8B.jinja",
        "https://github.com/vllm-project/vllm/pull/36664",
    ),
    body="json",
    openers=("<|message_sep|>", "function call<|role_sep|>", "assistant<|role_sep|>", "<|function_call|>"),
    head=(
        r"(?:<\|message_sep\|> )?(?:assistant<\|role_sep\|> )?function\x20call<\|role_sep\|>"
        # Version 3.1 writes only this token.
        r"|<\|function_call\|>"
    ),
    end=r"<\|message_sep\|>|</s>",
    reasoning=(),
    markers=("<|role_sep|>", "<|message_sep|>"),
    models=(r"gigachat-?3(?![.-]?5)",),
    template=("<|message_sep|>", "<|function_call|>"),
)
KIMI_K3 = Row(
    name="kimi_k3",
    title="Kimi K3",
    source=("https://github.com/ggml-org/llama.cpp/blob/master/models/templates/Kimi-K3.jinja",),
    body="tags",
    openers=("<|open|>tools<|sep|>", "<|open|>call "),
    section=r"<\|open\|>tools<\|sep\|>",
    section_end=r"<\|close\|>tools<\|sep\|>",
    head=(
        r"<\|open\|>call\s{1,9}tool=\"(?P<name>[^\"<>]{1,128})\"[^<>]{0,99}+<\|sep\|>"
        r"(?: <\|open\|>json[^<>]{0,99}+<\|sep\|>(?= \{)|(?= (?:[^<\s]|<[^|]|<\|[^o]|<\|open\|>[^j])))"
    ),
    end=r"(?:<\|close\|>json<\|sep\|> )?<\|close\|>call<\|sep\|>",
    key=r"<\|open\|>argument\s{1,9}key=\"(?P<key>[^\"<>]{1,128})\"(?:\s{1,9}type=\"(?P<type>\w{1,20})\")?\s{0,9}<\|sep\|>",
    value_end=r"<\|close\|>argument<\|sep\|>",
    exact=True,
    # https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/kimik3_detector.py
    entities=True,
    reasoning=(
        Tags("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        Tags("<|open|>response<|sep|>", "<|close|>response<|sep|>", TextKind.MESSAGE),
        # Some answers lack the closing tag.
        Tags("<|open|>response<|sep|>", "<|open|>tools<|sep|>", TextKind.MESSAGE, ends_before=True),
    ),
    prompt_opens=(r"kimi-?k3",),
    stops=("<|end_of_msg|>", '<|open|>message role="tool"'),
    markers=(
        "<|close|>tools<|sep|>", "<|close|>call<|sep|>", "<|close|>argument<|sep|>", "<|open|>response<|sep|>",
        "<|close|>response<|sep|>", "<|close|>response", "<|close|>message<|sep|>", "<|close|>message",
        '<|open|>message role="assistant"<|sep|>', "<|end_of_msg|>", "<|close|>json<|sep|>",
    ),
    models=(r"kimi-?k3",),
    template=("<|open|>",),
)  # fmt: skip
_SUFFIX = r"(?::\w{1,20}+)?"
HUNYUAN_3 = Row(
    name="hunyuan_3",
    title="Hunyuan 3",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/hy_v3_tool_parser.py",),
    body="tags",
    openers=("<tool_calls>", "<tool_calls:", "<tool_call>", "<tool_call:"),
    section=f"<tool_calls{_SUFFIX}>",
    section_end=f"</tool_calls{_SUFFIX}>",
    head=rf"<tool_call{_SUFFIX}> {NAME} (?:<tool_sep{_SUFFIX}>|(?=<arg_key|</tool_call))",
    end=f"</tool_call{_SUFFIX}>|<end_of_tool_call{_SUFFIX}>",
    key=f"<arg_key{_SUFFIX}> (?P<key>[^<]{{1,128}})</arg_key{_SUFFIX}> <arg_value{_SUFFIX}>",
    value_end=f"</arg_value{_SUFFIX}>",
    reasoning=(Tags("<think:opensource>", "</think:opensource>"), THINK),
    prompt_opens=(r"(?<![a-z])hy-?v?3", r"hunyuan-?v?3"),
    stops=("<｜hy_eos:opensource｜>", "<｜hy_eos｜>", "<｜hy_User:opensource｜>", "<tool_response"),
    markers=(
        "</tool_calls:opensource>", "</tool_call:opensource>", "</arg_key:opensource>", "</arg_value:opensource>",
        "<tool_sep>", "<tool_sep:opensource>", "<tool_calls:opensource>", "<tool_call:opensource>",
    ),
    # Hunyuan 4 by https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/hy_v4_tool_parser.py
    models=(r"(?<![a-z])hy-?v?[34]", r"hunyuan-?v?[34](?!\d*b)"),
    template=("<tool_sep",),
)  # fmt: skip
HUNYUAN_A13B = Row(
    name="hunyuan_a13b",
    title="Hunyuan A13B, MiniMax M1",
    source=("https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_hunyuan_a13b.jinja",),
    body="json",
    openers=("<tool_calls>",),
    head="<tool_calls>",
    end="</tool_calls>",
    stops=("<tool_response>", "<|extra_0|>", "<beginning_of_sentence>"),
    markers=("</tool_calls>", "<|eos|>"),
    # Jamba by https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/jamba_tool_parser.py
    models=(r"hunyuan.*a13b", r"minimax-?m1", r"(?<![a-z])jamba"),
    template=("<tool_calls>",),
)
MINIMAX_M2 = Row(
    name="minimax_m2",
    title="MiniMax M2",
    source=("https://huggingface.co/MiniMaxAI/MiniMax-M2/blob/main/docs/tool_calling_guide.md",),
    body="tags",
    openers=("<minimax:tool_call>", "<invoke name"),
    section="<minimax:tool_call>",
    section_end="</minimax:tool_call>",
    head=rf"<invoke\s{{1,9}}name = {_NAME_IN_QUOTES} >",
    end="</invoke>",
    key=rf"<parameter\s{{1,9}}name = {_KEY_IN_QUOTES} >",
    value_end="</parameter>",
    prompt_opens=(r"minimax-?m2",),
    stops=("[e~[", "]~b]user", "]~b]tool"),
    markers=("</minimax:tool_call>", "[e~[", "]~b]ai", "]~!b["),
    models=(r"minimax-?m2",),
    template=("<minimax:tool_call>",),
)
LFM2 = Row(
    name="lfm2",
    title="LFM2, LFM2.5",
    source=("https://huggingface.co/LiquidAI/LFM2-1.2B",),
    body="python",
    openers=("<|tool_call_start|>",),
    head=r"<\|tool_call_start\|>(?! \[? \{)",
    end=r"<\|tool_call_end\|>",
    reasoning=(THINK, Tags("<|thought_start|>", "<|thought_end|>")),
    stops=("<|tool_response_start|>", "<|im_end|>"),
    markers=("<|tool_call_end|>", "<|tool_response_end|>"),
    # openPangu 2 by https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/openpangu_v2_tool_parser.py
    models=(r"lfm-?2", r"pangu"),
    template=("<|tool_call_start|>",),
)
LFM2_JSON = replace(LFM2, title="LFM2 that was asked for JSON", body="json", head=r"<\|tool_call_start\|>")
PANGU_EMBEDDED = Row(
    name="lfm2",
    title="openPangu Embedded",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/pangu_tool_parser.py",),
    body="json",
    openers=("[unused11]",),
    head=r"\[unused11\]",
    end=r"\[unused12\]",
    reasoning=(Tags("[unused16]", "[unused17]"),),
    markers=("[unused12]",),
)
MINICPM_5 = Row(
    name="minicpm",
    title="MiniCPM 5; 3 and 4 write as LFM2",
    source=(
        "https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/minicpm5xml_tool_parser.py",
        "https://huggingface.co/openbmb/MiniCPM3-4B",
    ),
    body="tags",
    openers=("<function name", "<functionname", "<tool_call>"),
    section="<tool_call>",
    section_end="</tool_call>",
    head=rf"<function name = {_NAME_IN_QUOTES} >(?= <param name|<arguments>|(?:</arguments> )?</function>)",
    end="(?:<arguments> )?(?:</arguments> )?</function>",
    key=rf"(?:<arguments> )?<param name = {_KEY_IN_QUOTES} >",
    value_end="</param>",
    cdata=True,
    stops=("<|im_end|>",),
    models=(r"minicpm-?[345]",),
    template=("<param name=",),
)
GRANITE = Row(
    name="granite",
    title="Granite 3",
    source=("https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_granite.jinja",),
    body="json",
    openers=("<|tool_call|>",),
    head=r"<\|tool_call\|>",
    # Granite's templates have no end marker. This row also reads Phi-4-mini, whose template has `<|/tool_call|>`.
    end="",
    stops=("<|end_of_text|>", "<|start_of_role|>user"),
    markers=("<|/tool_call|>",),
    models=(r"granite-?3", r"granite-?20b"),
    template=("<|tool_call|>",),
)
PHI4_MINI = Row(
    name="phi4_mini",
    title="Phi-4-mini",
    source=("https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_phi4_mini.jinja",),
    body="json",
    openers=("functools[", "functools ["),
    head=r"functools(?= \[ [{\]])",
    end="",
    stops=("<|tool_response|>", "<|end|>"),
    models=(r"phi-?4-?mini",),
    template=("functools[", "<|/tool_call|>"),
)
COMMAND = Row(
    name="command",
    title="Command R7B, Command A, North",
    source=(
        "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja",
    ),
    body="json",
    openers=("<|START_ACTION|>",),
    head=r"<\|START_ACTION\|>",
    end=r"<\|END_ACTION\|>",
    reasoning=(Tags("<|START_THINKING|>", "<|END_THINKING|>"),),
    stops=("<|START_TOOL_RESULT|>", "<|END_OF_TURN_TOKEN|>"),
    markers=(
        "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>",
        "<|END_TOOL_RESULT|>",
    ),
    models=(r"command-?r7b", r"command-?a", r"north-?mini"),
    template=("<|START_ACTION|>",),
)  # fmt: skip
LLAMA4 = Row(
    name="llama4",
    title="Llama 4",
    source=("https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_llama4_pythonic.jinja",),
    body="python",
    openers=("<|python_start|>",),
    head=r"<\|python_start\|>(?! \[? \{)",
    end=r"<\|python_end\|>",
    stops=("<|eot|>", "<|eom|>", "<|header_start|>"),
    markers=("<|python_end|>",),
    models=(r"llama-?4",),
    template=("<|python_start|>", "<|header_start|>"),
)
LLAMA4_JSON = replace(
    LLAMA4,
    title="Llama 4 that was asked for JSON",
    source=("https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_llama4_json.jinja",),
    body="json",
    head=r"<\|python_start\|>",
)
OLMO3 = Row(
    name="olmo3",
    title="Olmo 3",
    source=("https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_olmo3.jinja",),
    body="python",
    openers=("<function_calls>",),
    head=r"<function_calls>(?= \[? [A-Za-z_][\w.]{0,127}+\x20?\(| \[ \])",
    end="</function_calls>",
    stops=("<|im_end|>",),
    markers=("</function_calls>",),
    models=(r"olmo-?3",),
    # https://huggingface.co/allenai/Olmo-3-7B-Think (chat template)
    prompt_opens=(r"olmo-?3.*think",),
    template=("<function_calls>",),
)
OLMO3_JSON = replace(
    OLMO3,
    title="Olmo 3 that writes JSON",
    source=("https://github.com/vllm-project/vllm/pull/26143",),
    body="json",
    head=r"<function_calls>(?= \[? \{)",
)
NEMOTRON_NANO = Row(
    name="nemotron_nano",
    title="Nemotron Nano v2, Llama Nemotron v1.5",
    source=("https://github.com/ggml-org/llama.cpp/blob/master/models/templates/NVIDIA-Nemotron-Nano-v2.jinja",),
    body="json",
    openers=("<TOOLCALL>",),
    head="<TOOLCALL>",
    end="</TOOLCALL>",
    # Llama Nemotron's prompt opens no thought: nvidia-Llama-3_3-Nemotron-Super-49B-v1_5.jinja in the same folder.
    prompt_opens=(r"nemotron-?nano.*v2",),
    stops=("<TOOL_RESPONSE>", "<SPECIAL_12>", "<SPECIAL_11>"),
    markers=("</TOOLCALL>",),
    models=(r"nemotron-?nano.*v2", r"nemotron-(super|nano).*v1[.-]?5"),
    template=("<TOOLCALL>",),
)
SEED_OSS = Row(
    name="seed_oss",
    title="Seed-OSS",
    source=("https://github.com/ggml-org/llama.cpp/blob/master/models/templates/ByteDance-Seed-OSS.jinja",),
    body="tags",
    openers=("<seed:tool_call>", "<function=", "<function name"),
    section="<seed:tool_call>",
    section_end="</(?:seed:)?tool_call>",
    head=QWEN3_CODER.head,
    end=QWEN3_CODER.end,
    key=QWEN3_CODER.key,
    value_end=QWEN3_CODER.value_end,
    reasoning=(Tags("<seed:think>", "</seed:think>"),),
    stops=("<seed:eos>", "<seed:bos>"),
    markers=("</seed:tool_call>", "<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"),
    models=(r"seed-?oss",),
    template=("<seed:tool_call>",),
)
STEP3 = Row(
    name="step3",
    title="Step 3",
    source=("https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/step3_detector.py",),
    body="tags",
    openers=(*_spell_deepseek_tokens("tool_calls_begin", "tool_call_begin"), "<|tool_calls_begin|>", "<steptml:invoke"),
    section=r"<[｜|]tool[▁_]calls[▁_]begin[｜|]>",
    section_end=r"<[｜|]tool[▁_]calls[▁_]end[｜|]>",
    head=(
        r"(?:<[｜|]tool[▁_]call[▁_]begin[｜|]> (?:function )?(?:<[｜|]tool[▁_]sep[｜|]> )?)?"
        rf"<steptml:invoke\s{{1,9}}name = {_NAME_IN_QUOTES} >"
    ),
    end="</steptml:invoke>",
    tail=r"<[｜|]tool[▁_]call[▁_]end[｜|]>",
    key=rf"<steptml:parameter\s{{1,9}}name = {_KEY_IN_QUOTES} >",
    value_end="</steptml:parameter>",
    prompt_opens=(r"step-?3(?![.-]?[57])",),
    stops=("<|EOT|>",),
    markers=(
        "</steptml:invoke>",
        "</steptml:parameter>",
        "<|EOT|>",
        "<|tool_calls_end|>",
        *_spell_deepseek_tokens("tool_calls_end", "tool_call_end", "tool_sep"),
    ),
    models=(r"step-?3(?![.-]?[57])",),
    template=("<steptml:",),
)
STEP_AUDIO_2 = Row(
    name="step3",
    title="Step-Audio 2",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/step_audio_2_tool_parser.py",),
    body="json",
    openers=("<tool_call>",),
    head=rf"<tool_call> function[\x20\t]{{0,9}}+\r?\n {_IDENTIFIER}[\x20\t]{{0,9}}+\r?\n (?=\{{)",
    end="</tool_call>",
    models=(r"step-?audio-?2",),
)
DOTS = Row(
    name="dots",
    title="dots",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/dots_tool_parser.py",),
    body="tags",
    openers=("<dots_function_call>",),
    section="<dots_function_call>",
    section_end="</dots_function_call>",
    head=MINIMAX_M2.head,
    end=MINIMAX_M2.end,
    key=MINIMAX_M2.key,
    value_end=MINIMAX_M2.value_end,
    stops=("<|endofresponse|>",),
    markers=("</dots_function_call>",),
    models=(r"dots[.-]?(1|llm|3)",),
    template=("<dots_function_call>",),
)
DOTS_JSON = Row(
    name="dots",
    title="dots that writes JSON",
    source=DOTS.source,
    body="json",
    openers=("<dots_function_call>",),
    head="<dots_function_call>",
    end="</dots_function_call>",
)
APERTUS = Row(
    name="apertus",
    title="Apertus",
    source=("https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_apertus.jinja",),
    body="json",
    openers=("<|tools_prefix|>",),
    head=r"<\|tools_prefix\|>",
    end=r"<\|tools_suffix\|>",
    keyed=True,
    reasoning=(Tags("<|inner_prefix|>", "<|inner_suffix|>"),),
    stops=("<|assistant_end|>",),
    markers=("<|tools_suffix|>", "<|assistant_start|>"),
    models=(r"apertus",),
    template=("<|tools_prefix|>",),
)
INTERNLM2 = Row(
    name="internlm2",
    title="InternLM 2 and 2.5, Intern-S1",
    source=("https://github.com/vllm-project/vllm/blob/main/examples/tool_chat_template_internlm2_tool.jinja",),
    body="json",
    openers=("<|action_start|>",),
    head=r"<\|action_start\|> (?:<\|plugin\|>|(?=[\[{]))",
    end=r"<\|action_end\|>",
    stops=("<|im_end|>",),
    markers=("<|action_end|>",),
    models=(r"internlm-?2", r"intern-?s1"),
    template=("<|action_start|>",),
)
LONGCAT_JSON = Row(
    name="longcat",
    title="LongCat Flash",
    source=("https://huggingface.co/meituan-longcat/LongCat-Flash-Chat",),
    body="json",
    openers=("<longcat_tool_call>",),
    head="<longcat_tool_call>",
    end="</longcat_tool_call>",
    reasoning=(Tags("<longcat_think>", "</longcat_think>"),),
    stops=("<longcat_tool_response>", "<longcat_user>", "</longcat_s>"),
    markers=(
        "</longcat_tool_call>",
        "</longcat_arg_key>",
        "</longcat_arg_value>",
        "<longcat_assistant>",
    ),
    models=(r"longcat",),
    template=("<longcat_tool_call>",),
)
LONGCAT = Row(
    name="longcat",
    title="LongCat 2.0",
    source=LONGCAT_JSON.source,
    body="tags",
    openers=("<longcat_tool_call>",),
    head=rf"<longcat_tool_call> {_IDENTIFIER} (?=<longcat_arg_key>|</longcat_tool_call>)",
    end="</longcat_tool_call>",
    key="<longcat_arg_key> (?P<key>[^<]{1,128})</longcat_arg_key> <longcat_arg_value>",
    value_end="</longcat_arg_value>",
)
K2_HORIZON = Row(
    name="k2_horizon",
    title="K2 Horizon",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/k2_horizon_tool_parser.py",),
    body="tags",
    openers=("<ifm|tool_calls>", "<ifm|tool_call>"),
    section=r"<ifm\|tool_calls>",
    section_end=r"</ifm\|tool_calls>",
    head=rf"<ifm\|tool_call> {_IDENTIFIER} (?=<ifm\|arg_key>|</ifm\|tool_call>)",
    end=r"</ifm\|tool_call>",
    key=(
        r"<ifm\|arg_key> (?P<key>[^<]{1,128})</ifm\|arg_key> "
        r"(?:<ifm\|arg_type>(?P<type>[^<]{0,99})</ifm\|arg_type> )?<ifm\|arg_value>"
    ),
    value_end=r"</ifm\|arg_value>",
    exact=True,
    reasoning=tuple(Tags(f"<ifm|{word}>", f"</ifm|{word}>") for word in ("think", "think_fast", "think_faster")),
    prompt_opens=(r"k2-?horizon",),
    stops=("<|ifm|im_end|>", "<|ifm|im_start|>user"),
    markers=(
        "</ifm|tool_calls>",
        "</ifm|tool_call>",
        "</ifm|arg_key>",
        "</ifm|arg_value>",
        "<|ifm|im_end|>",
    ),
    models=(r"k2-?horizon",),
    template=("<ifm|tool_call",),
)
K2_HORIZON_JSON = replace(
    K2_HORIZON, title="K2 Horizon that writes JSON", body="json", head=r"<ifm\|tool_call>(?= [\[{])"
)
SOLAR_OPEN = Row(
    name="solar_open",
    title="Solar Open 100B",
    source=("https://github.com/ggml-org/llama.cpp/pull/18511",),
    body="json",
    openers=("<|begin|>assistant<|tool_calls|>", "<|tool_calls|>", "<|tool_call:begin|>"),
    section=r"(?:<\|begin\|>assistant)?<\|tool_calls\|>",
    section_end=r"<\|calls\|>",
    head=rf"<\|tool_call:begin\|>[\w-]{{0,64}}<\|tool_call:name\|>{NAME}<\|tool_call:args\|>(?= \{{)",
    end=r"<\|tool_call:end\|>",
    # `<|end|>` also ends messages, so without its opener it does not close a thought.
    reasoning=(Tags("<|think|>", "<|end|>", calls=False),),
    stops=("<|calls|>",),
    markers=(
        "<|begin|>assistant<|content|>", "<|begin|>assistant", "<|content|>", "<|flush|>", "<|calls|>",
        "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>",
    ),
    models=(r"solar-?open(?!-?2)",),
    template=("<|tool_call:begin|>",),
)  # fmt: skip
SOLAR_OPEN_2 = Row(
    name="solar_open_2",
    title="Solar Open 2",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/solar_open2_tool_parser.py",),
    body="tags",
    openers=("<|tool_call:start|>",),
    head=rf"<\|tool_call:start\|> {_IDENTIFIER} (?=<\|tool_arg:start\|>|<\|tool_call:end\|>)",
    end=r"<\|tool_call:end\|>",
    key=r"<\|tool_arg:start\|>(?P<key>[^<]{1,128})<\|tool_arg:value\|>",
    value_end=r"<\|tool_arg:end\|>",
    exact=True,
    reasoning=(Tags("<|think:start|>", "<|think:end|>"),),
    prompt_opens=(r"solar-?open-?2",),
    markers=("<|tool_call:end|>", "<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>"),
    models=(r"solar-?open-?2",),
    template=("<|tool_call:start|>",),
)
MUSE_GLIMMER = Row(
    name="muse_glimmer",
    title="Muse Glimmer",
    source=(
        "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/muse_glimmer_detector.py",
    ),
    body="tags",
    openers=("<|start|>assistant to=", "<atem:function_calls>", "<atem:invoke name"),
    section=r"(?:<\|start\|>assistant to=[\w.-]{1,128}+<\|message\|> )?<atem:function_calls>",
    section_end="</atem:function_calls>",
    head=rf"<atem:invoke\s{{1,9}}name = {_NAME_IN_QUOTES} >",
    end="</atem:invoke>",
    key=rf"<atem:parameter\s{{1,9}}name = {_KEY_IN_QUOTES} >",
    value_end="</atem:parameter>",
    reasoning=(
        Tags("to=self<|message|>", "<|eom|>"),
        Tags("<|start|>assistant to=self<|message|>", "<|eom|>"),
        Tags("to=user<|message|>", "<|eot|>", TextKind.MESSAGE),
        Tags("<|start|>assistant to=user<|message|>", "<|eot|>", TextKind.MESSAGE),
    ),
    stops=("<|start|>user",),
    markers=("</atem:function_calls>", "<|eom|>", "<|eot|>"),
    models=(r"muse-?glimmer",),
    template=("<atem:function_calls>",),
)
INKLING = Row(
    name="inkling",
    title="Inkling",
    source=("https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/inkling_detector.py",),
    body="json",
    openers=("<|message_model|>", "<|content_invoke_tool_json|>"),
    head=r"(?:<\|message_model\|>[\w.-]{0,128}+)?<\|content_invoke_tool_json\|>(?= [\[{])",
    end=r"<\|end_message\|>",
    reasoning=(
        Tags("<|message_model|><|content_thinking|>", "<|end_message|>"),
        Tags("<|message_model|><|content_text|>", "<|end_message|>", TextKind.MESSAGE),
        Tags("<|content_thinking|>", "<|end_message|>"),
        Tags("<|content_text|>", "<|end_message|>", TextKind.MESSAGE),
    ),
    markers=("<|end_message|>", "<|content_model_end_sampling|>"),
    models=(r"(?<![a-z])inkling",),
    template=("<|content_invoke_tool_json|>",),
)
PLAMO_3 = Row(
    name="plamo_3",
    title="PLaMo 3",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/plamo3_tool_parser.py",),
    body="json",
    openers=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:begin_tool_request:plamo|>"),
    section=r"<\|plamo:begin_tool_requests:plamo\|>",
    section_end=r"<\|plamo:end_tool_requests:plamo\|>",
    head=(
        rf"<\|plamo:begin_tool_request:plamo\|> <\|plamo:begin_tool_name:plamo\|> {NAME} "
        r"<\|plamo:end_tool_name:plamo\|> <\|plamo:begin_tool_arguments:plamo\|> "
        r"(?:<\|plamo:constrain\|>json)?(?:<\|plamo:msg\|>)?(?= \{)"
    ),
    end=r"<\|plamo:end_tool_arguments:plamo\|>",
    tail=r"<\|plamo:end_tool_request:plamo\|>",
    reasoning=(Tags("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),),
    markers=(
        "<|plamo:end_tool_requests:plamo|>", "<|plamo:end_tool_request:plamo|>",
        "<|plamo:end_tool_arguments:plamo|>", "<|plamo:tag|>",
    ),
    models=(r"plamo-?3",),
    template=("plamo:begin_tool_request",),
)  # fmt: skip
IQUEST = Row(
    name="iquest",
    title="IQuest Coder 2, IQuest Q1",
    source=(
        "https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/iquest_coder_v2_tool_parser.py",
        "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/function_call/iquest_q1_detector.py",
    ),
    body="tags",
    openers=("<iquestcoder_tool_call>", "<iquest_tool_call>"),
    head=(
        rf"<iquest(?:coder)?_tool_call> {_IDENTIFIER} "
        r"(?=<arg_key>|</iquest(?:coder)?_tool_call>)"
    ),
    end="</iquest(?:coder)?_tool_call>",
    key="<arg_key> (?P<key>[^<]{1,128})</arg_key> <arg_value>",
    value_end="</arg_value>",
    exact=True,
    markers=("</iquestcoder_tool_call>", "</iquest_tool_call>"),
    models=(r"iquest-?coder-?v?2", r"iquest-?q1"),
    template=("<iquestcoder_tool_call>", "<iquest_tool_call>"),
)
CWM = Row(
    name="cwm",
    title="CWM",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/cwm_tool_parser.py",),
    body="json",
    openers=("<tool:",),
    head=r"<tool: \w{1,20} > (?P<name>[A-Za-z_][\w.-]{0,127}+)(?=[\s{]|</tool>)",
    end="</tool>",
    words=True,
    models=(r"(?<![a-z])cwm(?![a-z])",),
    template=("<tool:",),
)
RWKV = Row(
    name="rwkv",
    title="RWKV 7",
    source=("https://github.com/vllm-project/vllm/blob/main/vllm/tool_parsers/rwkv_tool_parser.py",),
    body="json",
    openers=("**Tool Call:**",),
    head=r"\*\*Tool\x20Call:\*\* ```json\s",
    end="```",
    models=(r"rwkv-?7", r"rwkv.*g1"),
    template=("**Tool Call:**",),
)

ROWS: tuple[Row, ...] = (
    HERMES, QWEN3_CODER, GLM, GLM_JSON, GLM_FLASH, MISTRAL, DEEPSEEK, DEEPSEEK_V3_2, DEEPSEEK_V4, DEEPSEEK_V4_1,
    KIMI, KIMI_K3,
    GEMMA_3, GEMMA, LLAMA3, LLAMA3_TAGGED, LLAMA4, LLAMA4_JSON, HUNYUAN_3, HUNYUAN_A13B, MINIMAX_M2, LFM2, LFM2_JSON,
    GRANITE, PHI4_MINI, COMMAND, OLMO3, OLMO3_JSON, NEMOTRON_NANO, SEED_OSS, STEP3, DOTS, DOTS_JSON, MINICPM_5,
    GIGACHAT_3, GIGACHAT_3_5, APERTUS, INTERNLM2, LONGCAT_JSON, LONGCAT, K2_HORIZON, K2_HORIZON_JSON,
    STEP_AUDIO_2, PANGU_EMBEDDED, SOLAR_OPEN, SOLAR_OPEN_2, MUSE_GLIMMER, INKLING, PLAMO_3, IQUEST, CWM, RWKV,
    XML_JSON, XML_TAGS,
)  # fmt: skip
