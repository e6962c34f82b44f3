"""vLLM's log of a run: phases of its startup, and patterns of failed requests.

Sources: the errors that vLLM 0.20 raises in vllm/entrypoints, renderers, multimodal, tool_parsers and sampling_params.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rigwright.engines.log_causes import Cause, StartupFacts
from rigwright.engines.metrics import MetricNames

STARTUP_PATTERNS = (" KV cache size: ", " attention backend", "Model loading took ", "init engine (profile")
# Of a start's memory: rigwright/engines/reported_memory.py
MEMORY_PATTERNS = (
    *("Model loading took ", "Available KV cache memory: ", " KV cache size: "),
    "Graph capturing finished in ",
)
# v1/metrics/loggers.py and v1/spec_decode/metrics.py
METRIC_NAMES = MetricNames(
    progress=("vllm:iteration_tokens_total_count",),
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_used="vllm:kv_cache_usage_perc",
    prompt_tokens=("vllm:prompt_tokens_total",),
    tokens="vllm:generation_tokens_total",
    prefix_hits="vllm:prefix_cache_hits_total",
    prefix_queries="vllm:prefix_cache_queries_total",
    preemptions="vllm:num_preemptions_total",
    drafts="vllm:spec_decode_num_drafts_total",
    draft_tokens="vllm:spec_decode_num_draft_tokens_total",
    accepted="vllm:spec_decode_num_accepted_tokens_total",
)
# v1/core/kv_cache_utils.py
TOKENS = re.compile(r".*\bKV cache size: ([0-9]{1,3}(?:,[0-9]{3}){0,4}) tokens\b.*")
# platforms/cuda.py; with another head size a model can have two
BACKEND = re.compile(r".*\bUsing ([A-Z][A-Z0-9_]{1,40}) attention backend\b.*")
# v1/worker/gpu_model_runner.py and v1/engine/core.py
SECONDS = re.compile(
    r".*\b(?:Model loading took [0-9.]{1,12} GiB(?: memory)? and|took) ([0-9]{1,6}(\.[0-9]{1,9})?) s.*"
)


def parse_startup(lines: Iterable[str]) -> StartupFacts:
    """The reports of a start; of several workers the first counts, but of backends all do."""
    tokens: list[int] = []
    backends: set[str] = set()
    seconds: dict[str, float] = {}
    for line in lines:
        if found := TOKENS.fullmatch(line):
            tokens.append(int(found[1].replace(",", "")))
        elif found := BACKEND.fullmatch(line):
            backends.add(found[1])
        elif found := SECONDS.fullmatch(line):
            seconds.setdefault("load" if "Model loading" in line else "init", float(found[1]))
    load = round(sum(seconds.values()), 1) if seconds else None
    return StartupFacts(tokens[0] if tokens else None, ", ".join(sorted(backends)), load)


REQUEST_CAUSES = (
    Cause(
        "request-length",
        r"maximum context length is \d{1,20}|exceeds model's maximum context length|longer than the maximum model "
        r"length|[Pp]rompt \(length \d{1,20}\)|`?(?:max_tokens|max_completion_tokens)`?.{0,60}(?:too large|exceed)"
        r"|exceeds max_tokens=",
        "a request is longer than the context: raise max_model_len, or send a shorter prompt or fewer max_tokens",
        request=True,
        names=r"length (?:is |of |\()(\d{1,20})",
    ),
    Cause(
        "request-model",
        r"The model `.{0,100}` does not exist|\bNotFoundError.{0,60}\bmodel\b",
        "a client asks for another model name: use the served_model_name, or add it",
        request=True,
        names=r"model `([^`]{1,80})`",
    ),
    Cause(
        "request-template",
        r"applying chat template|Unexpected role|Can only get item pairs from a "
        r"mapping|jinja2\.exceptions\.\w{1,80}|TemplateError|roles must alternate|Conversation roles"
        r"|System role not supported|System message must be at the beginning|No user query found in messages"
        r"|Only user and assistant roles|compiling Jinja template|Chat template is passed with request",
        "the chat template refuses the request's messages (their order, roles or tools) or is faulty: change the "
        "messages, or set another chat_template",
        request=True,
        names=r"(?:TemplateError|UndefinedError|SyntaxError): (.{3,80})",
    ),
    Cause(
        "request-media-count",
        r"At most \d{1,20} \w{1,80}\(s\) may be provided|You set \w{1,80}=\d{1,20} \(or defaulted",
        "a request has more images, videos or sounds than allowed: raise limit_mm_per_prompt",
        request=True,
        names=r"At most (\d{1,20} \w{1,80})\(s\)",
    ),
    Cause(
        "audio-packages",
        r"Invalid or unsupported audio file|[Ff]ailed to load audio|(?:soundfile|libsndfile).{0,60}(?:[Ee]rror|not "
        r"|install)|No audio (?:stream )?found",
        "the sound cannot be decoded: install vllm[audio] (soundfile, av) in the environment, else the file is damaged",
        request=True,
    ),
    Cause(
        "request-media",
        r"is not a multimodal model|The model is not multimodal|Failed to load image|cannot identify image file"
        r"|Could not open "
        r"video|allowed-local-media-path|must be from one of the allowed domains|Audio input was provided but"
        r"|Mismatch in `\w{1,80}` token count"
        r"|enable-mm-embeds|multimodal tokens to .{0,60}placeholders|prompt (?:placeholders|updates) corresponding"
        r"|placeholders in input prompt than|Failed to apply prompt replacement|Failed to apply \w{0,80}[Pp]rocessor",
        "the request's image, video or sound cannot be used: the model does not take it, it cannot be loaded from its "
        "address, or its placeholders do not fit the prompt",
        request=True,
    ),
    Cause(
        "request-grammar-tokens",
        r"grammar rejected tokens|Failed to advance "
        r"FSM|accept_tokens|GrammarMatcher.{0,80}(?:terminated|[Ff]ail|[Ee]rror)"
        r"|[Tt]okens? .{0,40}(?:rejected by|not accepted by) .{0,20}grammar|fill_next_token_bitmask|token bitmask",
        "the grammar of a request rejects a token that the model wrote (an end or control token, a reasoning or "
        "drafted "
        "one), a fault of the engine: use a newer version or another structured_outputs_config backend, without "
        "drafting; "
        "else send the request without a response format",
        request=True,
    ),
    Cause(
        "request-grammar",
        r"[Gg]rammar (?:error|is invalid)|[Ii]nvalid (?:grammar|JSON schema|regex)|compile_(?:json_schema"
        r"|grammar|regex)"
        r"|xgrammar.{0,80}(?:[Ee]rror|[Ff]ail|not)|Unsupported JSON schema|structured outputs?.{0,80}(?:not"
        r"|only|must|invalid|constraint)|kind of (?:constraints|structured outputs)|The provided JSON schema|EBNF"
        r"|lm-format-enforcer|llguidance|Tokenizer vocab.{0,60}xgrammar",
        "the schema, grammar or regular expression of a request cannot be used: simplify it, or use another "
        "structured_outputs_config backend; where it ends the engine, a newer version refuses only the request",
        request=True,
    ),
    Cause(
        "output-parser",
        r"HarmonyError|openai_harmony|unexpected tokens remaining in message header|Unexpected token \d{1,20} while "
        r"expecting "
        r"start token|pop from empty list|partial_json_parser|Error in extracting (?:tool call|reasoning)|[Ee]rror "
        r"(?:trying "
        r"to handle|extracting|in \w{0,80} ?streaming) tool call|MalformedJSON|Unknown role: |channel marker",
        "the parser of the model's output (tool_call_parser, reasoning_parser, Harmony of gpt-oss) fails on the "
        "model's output, a fault of this version or a parser of another model: use the parser for this model and a "
        "newer "
        "version; "
        "the request may succeed again, or without streaming, a forced tool_choice or changes of strict tool calling",
        request=True,
    ),
    Cause(
        "request-tools",
        r"tool_choice.{0,100}(?:must|not|requires|match|only)|`tools` must|not both\b.{0,20}tools|Tool call arguments "
        r"must|Mismatched "
        r"(?:curly|square"
        r"|paren)|incomplete tool call",
        "the model's tool call or the request's tool options cannot be used: check that tool_call_parser is the one "
        "for "
        "this model, and the request's tool_choice",
        request=True,
    ),
    Cause(
        "request-values",
        r"VLLMValidationError|RequestValidationError|BadRequestError|400 Bad Request|422 Unprocessable|out[- ]of[- "
        r"]vocab"
        r"|logprobs"
        r".{0,80}(?:must|greater|not)|(?:temperature|top_p|top_k|min_p|max_tokens|min_tokens|penalty)\b.{0,60}must be"
        r"|are not yet supported with speculative decoding|stop cannot contain",
        "a client's request has a value that vLLM refuses; the server itself works: correct the client",
        request=True,
    ),
    Cause(
        "request-key",
        r"401 Unauthorized|\"error\": ?\"Unauthorized\"|Invalid API [Kk]ey",
        "a client sends no or a wrong API key",
        request=True,
        of_checks=True,
    ),
)
