"""Causes in what llama.cpp says of options, drafting, adapters, requests, downloads and its own assertions.

Sources: LLAMA_LOG_ERROR, GGML_ABORT, GGML_ASSERT and the exceptions of llama.cpp's src, common, ggml and tools/server.
"""

from __future__ import annotations

from rigwright.engines.card_log_patterns import DRAFTING
from rigwright.engines.log_causes import UNKNOWN_CAUSE, Cause

_ASSERTION = r"GGML_ASSERT\((.{1,80}?)\) failed|GGML_ABORT\(\"?(.{1,80}?)\"?\)"
_TURN_OFF_DRAFTING = "turn drafting off (no draft model, no --spec-type), or use another build"

OPTIONS = (
    Cause(
        "option-removed",
        r"the argument has been removed|argument .{0,60}(?:deprecated|no longer supported)",
        "this llama-server has removed or renamed the option: the line names its replacement",
        names=r"argument \"?(-[\w-]{1,60})",
    ),
    Cause(
        "option-value",
        r"error while handling argument|expected value for argument|unknown value for|[Uu]nsupported cache type"
        r"|invalid device:|unknown buffer type|invalid value for main_gpu|unknown speculative type|invalid --\w"
        r"|error: --\w[\w-]{0,80} is required|error: (?:invalid HF repo format|Invalid type for KV override|failed "
        r"to open file)|must be between \d{1,20} and \d{1,20} inclusive",
        "an option has a value that this llama-server does not know, or names a file or device that does not exist: "
        "the "
        "line names it",
        names=r"argument \"(-[\w-]{1,60})|cache type: (\S{1,40})|device: (\S{1,40})|file '([^']{1,80})'",
    ),
    Cause(
        "preset",
        r"option '?[\w-]{0,80}'? ?(is )?not recognized in preset|preset file does not exist|failed to open server "
        r"preset|failed to parse .{0,40}preset|conflicts with (?:existing model name|alias)|appears multiple times",
        "the preset of models is wrong: an option that this llama-server lacks, a name that occurs twice, or no such "
        "file",
        names=r"option '([\w-]{1,60})'|model '([^']{1,80})'",
    ),
    Cause(
        "router-instance",
        r"failed to spawn server instance|instance name=\S{1,80} exited with status [1-9-]|model limit reached"
        r"|failed to load models on startup|unknown error while validating model|model name=\S{1,80} (?:is not found"
        r"|failed to load)",
        "llama-server's router could not start a model's own process: that process's lines above have the reason",
        general=True,
    ),
    Cause(
        "cache-type",
        r"K cache type \S{1,80} with block size|[KV] cache type .{0,80}(?:does not divide|not supported)|KV cache "
        r"quantization not "
        r"implemented|quantized KV cache .{0,60}not",
        "the type of the KV cache does not fit this model's head size or the split mode: use f16 (or q8_0 for both)",
        names=r"cache type (\w{1,20})",
    ),
    Cause(
        "split-mode-tensor-options",
        r"SPLIT_MODE_TENSOR requires|simultaneous use of SPLIT_MODE_TENSOR",
        'split_mode = "tensor" excludes another option: turn flash attention on and use an f16 KV cache, or '
        'use split_mode = "layer"',
    ),
    Cause(
        "zero-batch",
        r"n_batch and n_ubatch cannot both be zero|n_ctx and .{0,60}cannot both be zero|n_seq_max must be|n_ubatch "
        r"must be|pooling "
        r"type .{0,60}not",
        "values of context, batch or parallel requests contradict each other: set them as the line says",
    ),
    Cause(
        "batch-assertion",
        r"n_tokens_all <= cparams\.n_batch|encoder requires n_ubatch|n_ubatch >= n_tokens|GGML_ASSERT\(batch\.n_tokens"
        r"|increase the physical batch size",
        "an input is larger than the batch: raise batch and ubatch sizes (-b, -ub) to the longest input",
    ),
)

DRAFT = (
    Cause(
        "draft-model",
        r"failed to (?:load|create|initialize) (?:the )?(?:draft|MTP|speculative) (?:model|context)|draft "
        r"model.{0,200}(?:is not compatible"
        r"|incompatible"
        r"|must match|is not eagle3)|draft vocab .{0,100}(?:must|match)|speculative decoding .{0,200}not supported"
        r"|DFlash: |DSpark "
        r"|EAGLE3: |failed to initialize speculative|failed to process speculative|draft-\w{1,80} requires|unsupported "
        r"batch\.has_embd"
        r"|the target context does not support partial sequence removal|draft model is not compatible",
        "the draft model cannot be used with this model (other vocabulary, sizes or kind): use the draft model that is "
        "made for it, or none",
        names=r"(vocab \w{1,80})|draft model,? '([^']{1,80})'",
    ),
    Cause(
        "draft-head",
        r"borrow_shared_tensor: .{0,100}draft head",
        "the draft head borrows tensors of the main model and fails if they do not match: use the head "
        "made for "
        f"this model, or {_TURN_OFF_DRAFTING}",
        context=r"GGML_ASSERT|GGML_ABORT|[Aa]ssert",
    ),
    Cause(
        "drafting-assertion",
        r"GGML_ASSERT\(|Assertion [`'].{0,200}['`] failed|CUDA error: (?:an illegal|misaligned|device-side)",
        f"a fault of llama.cpp while it drafts tokens, which is on here: {_TURN_OFF_DRAFTING}",
        context=DRAFTING,
        names=_ASSERTION,
    ),
    Cause(
        "grammar-start",
        r"Failed to initialize samplers|error initializing grammar sampler|common_sampler_init: .{0,80}grammar",
        "the grammar or JSON schema of a request cannot start: it refuses the text before the answer (an "
        "assistant message to continue, the template's thinking block), or is invalid: send no such message together "
        "with "
        "a schema, turn thinking off, use a newer build, else simplify the schema",
        request=True,
    ),
    Cause(
        "sampler-assertion",
        r"llama-sampl\w{1,80}\.cpp:\d{1,20}: .{0,80}[Aa]ssert|Unexpected empty grammar stack|llama_grammar_(?:accept"
        r"|reject|init)\w{0,80}: .{0,80}(?:assert|fail)",
        "the grammar (of a schema or tools) or the sampler rejects a token that the model or its draft wrote, a fault "
        "of "
        f"this build: use a newer build; {_TURN_OFF_DRAFTING}; else send the request without a schema",
        names=r"Assertion [`'](.{1,80}?)['`] failed",
    ),
)

ASSERTIONS = (
    Cause(
        "split-mode-row",
        r"GGML_ASSERT\(.{0,30}\bsplit\b|ggml_backend_cuda_split|split_buffer|CUDA\d?_Split",
        'a fault of split_mode = "row": use split_mode = "layer"',
        names=_ASSERTION,
    ),
    Cause(
        "graph-pool",
        r"GGML_ASSERT\(obj_new\)|ggml_new_object: not enough space|cgraph->n_nodes < cgraph->size|not enough space "
        r"in the context's",
        'the memory for the compute graph is too small, a fault of llama.cpp seen with split_mode = "tensor" and with '
        'MTP: use split_mode = "layer", turn drafting off, or use a newer build',
    ),
    Cause(
        "token-range",
        r"GGML_ASSERT\(i01 >= 0 && i01 < ne01\)|invalid token ?(?:\[|id)|token id .{0,40}out of range"
        r"|GGML_ASSERT\(.{0,40}n_vocab",
        "a token is beyond the model's vocabulary: the draft model, projector or saved state belongs to another model",
    ),
    Cause(
        "rope-positions",
        r"GGML_ASSERT\(a->ne\[2\] \* 4 == b->ne\[0\]\)|n_pos_per_embd|M-?RoPE.{0,60}(?:assert|mismatch|requires)",
        "the positions of a multimodal model do not fit its draft model or projector: use a newer build, or no draft "
        "model",
    ),
    Cause(
        "operation-missing",
        r"cannot run the operation|unsupported op(?:eration)?\b|op not (?:supported|implemented)|pre-allocated tensor"
        r"|not implemented "
        r"for this (?:type|backend)|unsupported type combination|ggml_\w{1,80}: .{0,60}(?:unsupported|not implemented)",
        "the backend lacks an operation that the model needs for this type: use a newer build, the CUDA backend, or "
        "another quantisation",
        names=r"operation \((\w{1,40})\)|tensor \((\S{1,60})\)|(ggml_\w{3,60}):",
    ),
    Cause(
        "model-limits",
        r"GGML_ASSERT\(.{0,60}LLAMA_MAX_|GGML_ASSERT\(.{0,40}n_(?:expert|layer)\w{0,80} <=",
        "the model is larger than this build's tables allow: use a newer build",
        names=_ASSERTION,
    ),
    Cause(
        "no-candidate-token",
        r"GGML_ASSERT\((?:cur_p->size > 0|!?cur_p|cur_p->selected|smpl)",
        "the sampler had no token to choose from: the model computed invalid numbers (a damaged file, a kernel's "
        "fault on this "
        "card or a KV cache type), or sampling options exclude all tokens: use another build or backend, an f16 KV "
        "cache, "
        "default sampling",
        names=_ASSERTION,
    ),
    Cause(
        "media-in-prompt",
        r"GGML_ASSERT\(.{0,40}has_mtmd",
        "a prompt with images or sound needs a feature that supports text only (context shift, reuse of the cache, "
        "drafting): turn the feature off, or use a newer build",
    ),
    Cause(
        "sequence-assertion",
        r"GGML_ASSERT\(.{0,60}seq_(?:id|pos|tokens)|GGML_ASSERT\(.{0,30}n_seq",
        "the model's memory (recurrent layers, unified KV cache) does not support parallel requests, a fault of this "
        "build: use one slot (-np 1), leave --kv-unified and drafting out, or use a newer build",
        names=_ASSERTION,
    ),
    Cause(
        "shape-assertion",
        r"GGML_ASSERT\((?:ggml_can_(?:repeat|mul_mat)|ggml_are_same_shape|ggml_nelements|\w{1,80}->ne\["
        r"|ggml_is_contiguous)",
        "tensors of the graph have wrong shapes, because the file (or draft model, adapter, projector) does not "
        "match this build's code for the architecture: use a newer build, or a file converted for it",
        names=_ASSERTION,
    ),
    Cause(
        "buffer-assertion",
        r"GGML_ASSERT\((?:tensor->)?(?:buffer|data|buf|backend)\b",
        "a tensor has no memory, a fault of this build, most often with drafting or offloading to several devices: "
        "turn "
        "drafting off, change tensor overrides and split mode, or use another build",
        names=_ASSERTION,
    ),
)

REQUESTS = (
    Cause(
        "context-shift",
        r"exceeds? the available context size|[Pp]rompt is too (?:big|large)|[Cc]ontext size has been exceeded|input "
        r"is too large to process|KV "
        r"cache is full"
        r"|failed to find (?:free space in the KV cache|a memory slot)|prompt is too long|the request exceeds",
        "a request is longer than the context: raise the context (it is divided among parallel requests), or shorten "
        "the "
        "request",
        request=True,
        names=r"\((\d{1,20} tokens)\)",
    ),
    Cause(
        "template",
        r"Unable to generate parser for this template|Value is not callable|Expected value expression| at row "
        r"\d{1,20}, column \d{1,20}|System message must be at the beginning|[Jj]inja.{0,200}(?:[Ee]rror|exception)"
        r"|failed to (?:apply|parse|initialize) .{0,20}(?:chat )?template|chat template parsing error|template is "
        r"not supported|requires --jinja|try using --jinja|Unknown (?:\(built-in\) )?(?:filter|test|statement)"
        r"|Callee is not a function|Conversation roles must|Cannot continue an assistant message|Failed to parse "
        r"(?:messages|tools|tool call)|2 or more assistant messages|Unknown (?:chat|reasoning) format|Cannot "
        r"(?:access property|assign to|perform operation|unpack|call something)|(?:Unsupported|Missing) (?:content "
        r"part|tool|comparison)|Template seems to support tool calls, but|requires numeric operand|Expected iterable "
        r"or object",
        "the chat template cannot be used, or refuses the request's messages (their order, roles or tools): give "
        "another "
        "one as chat_template_file, or change the messages",
        names=r"(?:[Ee]rror|failed): (.{3,80})",
    ),
    Cause(
        "output-format",
        r"Failed to parse input at pos|does not match the expected|Failed to parse tool call arguments",
        "the model's output does not match the tool call format of its template: use a newer build, the "
        "model's corrected template, or a less quantised model",
        request=True,
    ),
    Cause(
        "prompt-recomputed",
        r"forcing full prompt re-processing",
        "the prompt is computed again, because the model's memory (sliding window or recurrent) cannot go back: raise "
        "--ctx-checkpoints, or use --swa-full",
        request=True,
    ),
    Cause(
        "grammar",
        r"failed to parse grammar|error parsing grammar|JSON schema (?:conversion failed|error)|error initializing "
        r"grammar|[Uu]nrecognized "
        r"schema|llg (?:error|tokenizer)|Cannot use both json_schema and grammar|Cannot (?:specify|use custom) "
        r"grammar|Invalid regex "
        r"pattern|no triggers set for lazy grammar|llguidance is not enabled",
        "the grammar or JSON schema of a request (or of its tools) cannot be used by this build: simplify it, send it "
        "without "
        "schema or tools, or use a newer build",
        request=True,
        names=r"(?:failed:|error:|grammar:|pattern) ([^\"]{3,80})",
    ),
    Cause(
        "media-input",
        r"(?:image|audio|video) input is not supported|Failed to load image or audio file|does not support multimodal"
        r"|not supported by "
        r"multimodal|failed to (?:process|decode|encode) .{0,12}mtmd|file:// URLs are not allowed|mtmd_helper\w{0,80}: "
        r".{0,60}fail",
        "the request has an image, sound or video that the model does not accept: give the projector (mmproj) of this "
        "model, or "
        "use a multimodal model",
        request=True,
    ),
    Cause(
        "saved-state",
        r"Unexpected end of server tokens|server tokens state|slot save file|Restored prompt does not fit|failed to "
        r"restore state"
        r"|checkpoint size mismatch|state_read|failed to (?:read|restore) (?:kv|KV) cache",
        "a saved state of a slot does not fit this build, model or context: delete it",
    ),
    Cause(
        "endpoint-off",
        r"does not support (?:embeddings|reranking|completions|chat)|[Ss]tart it with `?--\w{1,80}|endpoint is not "
        r"supported|Pooling type "
        r"'none' is not|Start with `--(?:slots|metrics|props)`",
        "the endpoint is off: start llama-server with the option that the line names",
        request=True,
        names=r"`(--[\w-]{2,40})",
    ),
    Cause(
        "client-model",
        r"\"code\": ?404,\"message\": ?\"model|\bmodel '[^']{0,100}' not found|model name=\S{1,80} is not found",
        "a client asks for a model name that this llama-server does not have: use one of /v1/models",
        request=True,
        names=r"model '([^']{1,80})'",
    ),
    Cause(
        "client-key",
        r"Invalid API Key",
        "a client sends no API key or a wrong one",
        request=True,
        of_checks=True,
    ),
    Cause(
        "client-values",
        r"invalid_request_error|All non-assistant messages|Assistant message must contain|Cannot (?:set|specify) both"
        r"|Invalid 'content' type|'\w{1,80}' (?:is required|must be)|is required\",|Expected '\w{1,80}' to be|must "
        r"be (?:an array|a non-empty|one of)|Unsupported param|Missing '\w{1,80}' in|penalty\w{0,80} must be finite"
        r"|Invalid '\w{1,80}' content type|got exception: .{0,200}\"code\":400",
        "a client's request has a value that llama-server refuses; the server itself works: correct the client",
        request=True,
    ),
    Cause(
        "still-loading",
        r"Loading model\",|\"code\":503|server is loading|unavailable_error",
        "requests come before the model is loaded: wait until /health answers",
        request=True,
    ),
    Cause(
        "sequence-positions",
        r"inconsistent sequence positions|the sequence positions remain consecutive",
        "a batch does not continue what the KV cache of its slot contains, a fault of this build in reusing that "
        "cache, drafting or pictures: use a newer build; until then parallel = 1, or no reuse of prompts",
    ),
    Cause(
        "decode-failed",
        r"failed to decode(?: the batch)?\b|failed to initialize batch"
        r"|ggml-cuda\.cu:\d{1,20}: CUDA error|compute_forward: \w{1,80} failed|command "
        r"buffer \d{1,20} failed|failed to prepare|llama_decode: failed|Decode failed|Compute error|failed to compute "
        r"graph|post_decode\(\) failed"
        r"|graph_compute: .{0,60}failed|llama_process\(ctx_dft\) failed",
        f"{UNKNOWN_CAUSE}computing a batch failed: the line above has the reason (memory, context, or the card)",
        broad=True,
    ),
)

DEVICES = (
    Cause(
        "no-vulkan",
        r"ggml_vulkan: No devices found|vk::createInstance|ErrorIncompatibleDriver|ErrorInitializationFailed"
        r"|vkCreateInstance failed"
        r"|Found no Vulkan|libvulkan\.so",
        "Vulkan finds no card: install the card's Vulkan driver (ICD) and loader, and pass /dev/dri into the container",
    ),
    Cause(
        "vulkan-driver",
        r"[Cc]ompute pipeline creation failed|createComputePipeline|vk::[\w:]{1,100}: Error"
        r"|vk::\w{1,80}Error|UR_RESULT_ERROR_\w{1,80}",
        "the graphics driver refused a call: upgrade it (Mesa, oneAPI), or use another backend or an older build",
        names=r"(Error[A-Z]\w{2,40}|UR_RESULT_\w{2,40})",
    ),
    Cause(
        "metal-memory",
        r"kIOGPUCommandBufferCallbackErrorOutOfMemory|Insufficient Memory \(|ggml_metal\w{0,80}: .{0,80}(?:failed to "
        r"allocate|out of memory)",
        "model and context do not fit in the memory that Metal may use: lower the context or use a smaller "
        "quantisation",
    ),
    Cause(
        "rpc",
        r"Remote RPC server crashed|RPC .{0,60}(?:failed|mismatch|not supported)|failed to find RPC|Failed to "
        r"connect to \S{1,80}:\d{1,20}|RPC "
        r"server .{0,60}(?:version|fail)",
        "a remote RPC server does not answer, crashed, or has another version: run the same build on all hosts",
        names=r"connect to (\S{1,60})",
    ),
    Cause(
        "backend-missing",
        r"no CPU backend found|no backends are loaded|failed to load backend|libggml-\w{1,80}\.so: cannot open"
        r"|ggml_backend_load\w{0,80}: .{0,60}fail"
        r"|make_cpu_buft_list",
        "llama.cpp finds no library of a backend: keep the libggml-*.so files of the same build in the program's "
        "folder, or "
        "set LD_LIBRARY_PATH",
    ),
)

OPTION_CAUSES = (*OPTIONS, *DRAFT, *ASSERTIONS, *REQUESTS, *DEVICES)
