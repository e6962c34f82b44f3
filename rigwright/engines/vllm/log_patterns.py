"""Causes in vLLM's log: parts of messages of vLLM 0.19 to 0.21, of torch, and of the libraries that vLLM loads."""

from __future__ import annotations

from rigwright.engines.card_log_patterns import DRAFTING_FAULT
from rigwright.engines.log_causes import Cause
from rigwright.engines.log_patterns import COMMON_CAUSES
from rigwright.engines.python_log_patterns import FORMS
from rigwright.engines.vllm.option_log_patterns import EARLY, OPTION_CAUSES
from rigwright.engines.vllm.runtime_log import REQUEST_CAUSES

MARKER = (
    r"\"type\": ?\"(?:BadRequest|InternalServer|NotFound)Error\"|\((?:APIServer|EngineCore|Engine_?\w{0,80}"
    r"|Worker)[^()]{0,30} ?pid=\d{1,20}\)|\bvllm\b|\bvLLM\b|\[(?:core|launcher|loggers|gpu_model_runner|gpu_worker"
    r"|api_server|multiproc_executor|async_llm|shm_broadcast|pynccl|envs|kv_cache_utils|fa_utils|config|model"
    r"|utils)\.py:\d{1,20}\]|^Traceback \(most recent call last\)|^\s{0,20}(?:[\w.]{1,80}\.)?[A-Z]\w{1,80}(?:Error"
    r"|Exception): |/csrc/custom_all_reduce"
)
"""Patterns that only a log of vLLM contains: the names of its processes, its package and source files, and Python's "
"exceptions."""

_SMALLER = (
    "the card's memory is full: lower max_model_len, max_num_seqs or max_num_batched_tokens; while weights load, use a "
    "smaller quantisation or more cards; while a request runs, lower gpu_memory_utilization"
)

CAUSES = (
    Cause(
        "is-less-than-desired-gpu-memory-utilization",
        r"is less than desired GPU memory utilization|Free memory on device .{0,60}on startup",
        "another program uses the card's memory: see nvidia-smi, or lower gpu_memory_utilization",
        check="N04",
        names=r"on device (\S{1,20} \([\d./ ]{3,20}GiB\))",
    ),
    Cause(
        "traceback-frame",
        r"^[^\n]{0,120}\bFile \"[^\"]{1,300}\", line \d{1,20}",
        "a frame of a traceback: its last line has the error",
        harmless=True,
        plain=True,
    ),
    Cause(
        "fallback",
        r"^[^\n]{0,80}\b(?:WARNING|INFO)\b.{0,300}(?:[Ff]alling back to|will be disabled)",
        "vLLM replaces an unsuitable component",
        harmless=True,
        plain=True,
    ),
    Cause(
        "engine-arguments",
        r"non-default args: |LLM engine \(v\S{1,60}\) with config: |args: Namespace\(|Dumping (?:input data|scheduler)",
        "the configuration of the engine",
        harmless=True,
        plain=True,
    ),
    *EARLY,
    Cause(
        "kv-cache-is-needed-which-is-larger-than-the-avai",
        r"KV cache is needed, which is larger than the available KV cache memory|To serve at least one request with "
        r"the "
        r"model|larger than the maximum number of tokens that can be stored in KV cache|[Ee]stimated maximum model "
        r"length",
        "max_model_len does not fit next to the weights: lower it (the line has the largest that fits), or raise "
        "gpu_memory_utilization",
        names=r"max seq len \((\d{1,20})\)|max_model_len \((\d{1,20})\)",
    ),
    Cause(
        "no-available-memory-for-the-cache-blocks",
        r"No available memory for the cache blocks|Available KV cache memory: -",
        "the weights leave no space for the KV cache: raise gpu_memory_utilization, lower max_num_batched_tokens, or "
        "use "
        "a smaller quantisation or more cards",
    ),
    Cause(
        "mamba-cache-blocks",
        r"exceeds available Mamba cache blocks|max_num_seqs \(\d{1,20}\) exceeds",
        "each sequence needs a Mamba cache block: lower max_num_seqs to the number in the line, or "
        "raise gpu_memory_utilization",
    ),
    Cause(
        "cuda-out-of-memory",
        r"(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory|torch\.(?:cuda\.)?OutOfMemoryError",
        _SMALLER,
    ),
    Cause(
        "max-model-len",
        r"User-specified max_model_len \(\d{1,20}\) is greater than the derived max_model_len"
        r"|VLLM_ALLOW_LONG_MAX_MODEL_LEN|max_model_len must be",
        "max_model_len is above what the model's config.json allows: lower it, or declare rope scaling",
    ),
    Cause(
        "batched-tokens",
        r"max_num_batched_tokens \(\d{1,20}\) is (smaller|less) than|max_num_batched_tokens.{0,200}must be"
        r"|max_num_scheduled_tokens|long_prefill_token_threshold",
        "max_num_batched_tokens does not fit the other limits that the line names: raise it to the value in the line",
    ),
    Cause(
        "speculative-decoding",
        r"NotImplementedError: .{0,200}[Ss]peculative [Dd]ecoding|[Ss]peculative [Dd]ecoding .{0,200}not (yet )?support"
        r"|\b(?:EAGLE|MTP|DFlash|Medusa|drafter|drafting|draft model)\b.{0,100}(?:not (?:yet )?support|not compatible"
        r"|not implemented|only supports?)|spec(?:ulative)?[ _-]decod\w{1,80}.{0,100}(?:requires|only)",
        "this vLLM does not combine speculative decoding with this model or option: remove speculative_config (or the "
        "option that the line names), or use a newer vLLM",
    ),
    Cause(
        "reasoning-parser",
        r"(?:parser|Parser).{0,40}could not locate|tokenizer did not include <",
        "the reasoning_parser or tool_call_parser belongs to another model, because the tokenizer lacks its "
        "markers: use the one "
        "that "
        "the model's page names, or none",
        names=r"\b(\w{1,80}) (?:reasoning|[Tt]ool) ?[Pp]arser|\b(\w{1,80}Parser)",
    ),
    Cause(
        "cutlass-version",
        r"module '?cutlass[\w.]{0,80}'? has no attribute|mlir_global_dtors|nvidia_cutlass_dsl|cutlass(?:\.|_)(?:cute"
        r"|dsl)\S{0,80} "
        r".{0,60}(?:[Ee]rror|attribute)|No module named 'cutlass",
        "nvidia-cutlass-dsl has another version than the engine expects: install the version that it pins",
    ),
    Cause(
        "heads-not-divisible",
        r"attention heads \(\d{1,20}\) must be divisible by tensor parallel size|is not divisible by "
        r"(tensor parallel|tp|the tensor)|must be divisible by tensor_parallel_size|heads must be "
        r"divisible by|parallel world size must divide|AssertionError: \d{1,20} is not divisible by \d{1,20}",
        "the model cannot be split over this number of cards: choose a tensor_parallel_size that "
        "divides its attention heads",
        names=r"(\(\d{1,20}\).{0,60}\(\d{1,20}\))",
    ),
    Cause(
        "world-size",
        r"World size \(\d{1,20}\) is larger than the number of available GPUs|tensor parallel "
        r"size.{0,200}(exceeds|larger than).{0,200}(GPUs|devices)|local_world_size .{0,60}must be less than or equal"
        r"|DP adjusted local rank",
        "the variant needs more cards than the instance sees: compare `cards` with tensor_parallel_size",
        check="N01",
    ),
    Cause(
        "failed-to-infer-device-type",
        r"Failed to infer device type|Device string must not be empty",
        "vLLM sees no card: no driver responds (see nvidia-smi), or the container was started without the cards",
        check="N02",
    ),
    Cause(
        "no-available-shared-memory-broadcast-block-found",
        r"No available shared memory broadcast block found",
        "a worker hangs or works long (weights, kernels to compile, a collective that another card or host does not "
        "join): look for the first error of a worker, and for an Xid: `journalctl -k --grep Xid`",
        general=True,
    ),
    Cause(
        "vllm-is-using-nccl",
        r"vLLM is using nccl",
        'the cards cannot reach each other: set NCCL_P2P_DISABLE to "1"',
        last=True,
    ),
    DRAFTING_FAULT,
    Cause(
        "an-illegal-memory-access-was-encountered",
        r"an illegal memory access was encountered",
        "a kernel of vLLM read or wrote a wrong address, mostly a fault of vLLM: change its version, turn off "
        'speculative_config, then set compilation_config = {cudagraph_mode = "PIECEWISE"}; else a faulty card: look '
        "for "
        "an Xid: `journalctl -k --grep Xid`",
    ),
    # whatever it guesses ahead is thrown away; 1 is what comes without
    Cause(
        "mean-acceptance-length-1-00",
        r"Mean acceptance length: 1\.00",
        "the draft model or MTP layers are not loaded, or their patch is missing",
        check="V04",
    ),
    Cause(
        "unrecognized-arguments",
        r"unrecognized arguments:",
        "this vLLM has no such option (another version, or a misspelling): remove or rename it",
        names=r"arguments: (\S{1,80})",
    ),
    Cause(
        "invalid-option",
        r"(vllm|api_server\.py|usage)\b.{0,20}: error: (argument|the following arguments|invalid choice|expected)"
        r"|error: "
        r"argument --?[\w-]{1,80}",
        "an option has a value that this vLLM refuses: the line names it",
        names=r"argument (-[\w/-]{1,80})",
    ),
    Cause(
        "concurrent-partial-prefill-is-not-supported",
        r"Concurrent Partial Prefill is not supported",
        "remove max_num_partial_prefills and related options",
    ),
    Cause(
        "bfloat16-is-only-supported-on-gpus",
        r"Bfloat16 is only supported on GPUs",
        'cards below compute capability 8.0 do not support it: use dtype = "half"',
    ),
    Cause(
        "fp8-card",
        r"fp8e4nv not supported|fp8e4nv.{0,40}(?:not supported|supported only)|type fp8e4\w{0,80} not supported"
        r"|(?:FP8|fp8).{0,80}(?:requires?|only supported|needs?).{0,60}(?:capability|Ada|Hopper|SM ?89|8\.9|H100)",
        "the card has no FP8 of this kind (cards below compute capability 8.9), which the KV cache or the weights ask "
        "for: "
        'set kv_cache_dtype = "auto" if it is fp8, else serve the model in another quantisation',
    ),
    Cause(
        "quantization-capability",
        r"quantization method .{0,200} is not supported for the current GPU|Quantization scheme is not "
        r"supported for|Min(?:imum)? capability: \d{1,20}|Marlin W4A8-FP8 only|FP8 .{0,60}requires .{0,40}capability",
        "these cards do not support the model's quantisation: serve another variant",
        names=r"method:? '?(\w{2,40})",
    ),
    Cause(
        "attention-reasons",
        r"^\W{0,8}(?:Reasons: \{)?\W{0,4}[A-Z][A-Z0-9_]{4,40}: \[[a-zA-Z]",
        "the reasons of each attention backend",
        harmless=True,
        plain=True,
    ),
    Cause(
        "no-attention-backend",
        r"No valid attention backend|No suitable attention backend",
        "no attention backend of this build can serve this model with these options on this card: the line or the "
        "next lines contain the reasons; remove options that all of them name (kv_cache_dtype, block_size, "
        "attention_backend); where "
        "they name sparse, MLA or the compute capability, only another card, a build with a backend for it, or another "
        "model helps",
        names=r"(head_size=\d{1,20}, ?dtype=[\w.]{1,80}(?:, ?kv_cache_dtype=\w{1,80})?)|(head_size=\d{1,20})",
    ),
    Cause(
        "block-sizes",
        r"No common block size for|block[_ ]size.{0,80}(?:not supported by|is not supported|must be (?:a )?(?:multiple|"
        r"divisible))|[Ii]nvalid block[_ ]size",
        "the attention backends of the model's layers have no block size in common: remove block_size, "
        "attention_backend "
        "and kv_cache_dtype, else this version has no complete code for the model: use one that has",
        names=r"block[ _]size (?:for )?(\d{1,20})",
    ),
    Cause(
        "selected-attention-backend",
        r"[Ss]elected backend .{0,200} is not valid for this configuration|Invalid attention backend|[Uu]nknown "
        r"attention "
        r"backend|Cannot use .{0,60} backend|[Aa]ttention backend .{0,80}(?:has been removed|not supported|does not "
        r"support|is not)|Backend \S{1,40} is not supported "
        r"for|VLLM_ATTENTION_BACKEND.{0,60}(?:not|invalid|[Ii]nvalid)",
        "the selected attention backend does not exist in this version or does not support this model, card or option: "
        "remove attention_backend, or select another; the line has the reasons (of kv_cache_dtype: set that to auto)",
        names=r"[Bb]ackend'?:? (?:AttentionBackendEnum\.)?'?([A-Z]\w{2,40})",
    ),
    Cause(
        "attention-limits",
        r"flash attention build does not support|Unsupported FA version|(?:FlashAttention|Flash "
        r"attention|FlashInfer|FlashMLA|FlexAttention|TritonMLA|CutlassMLA|MLA attention"
        r"|Sinks?|[Hh]ead (?:dimension|size)|head_(?:dim|size))(?!.{0,60}kv.?cache).{0,100}(?:not support|n't support"
        r"|only support|not available|requires|not detected|[Uu]nsupported|[Ii]nvalid)",
        "the attention kernels in use do not support this head size, data type, option or card: try another "
        "attention_backend; where none does, another card or build is needed",
        names=r"(Flash\w{3,20}|head[_ ]\w{1,80}[ =:]{1,80}\d{1,20})",
    ),
    Cause(
        "invalid-literal-for-int-with-base-10-gpu",
        r"invalid literal for int\(\) with base 10: 'GPU-",
        "this vLLM accepts card indexes, not UUIDs",
    ),
    Cause(
        "nccl-error",
        r"NCCL error: |ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclInvalidUsage|unhandled (?:cuda"
        r"|system) "
        r"error|NCCL WARN Cuda failure(?!.{0,30}(?:out of memory|invalid device))|peer access is not supported",
        'NCCL failed, most often because the cards cannot reach each other: set NCCL_P2P_DISABLE to "1"; a container '
        "also needs `--ipc=host`; NCCL_DEBUG=INFO shows the step",
    ),
    Cause(
        "worker-died",
        r"WorkerProc (?:initialization )?failed|WorkerProc hit an exception|Worker proc .{0,200} died unexpectedly"
        r"|VllmWorker-?\S{1,80} died|Worker failed with error|Worker \S{1,80} failed to initialize|RayWorkerProc "
        r".{0,40}(?:failed|died)|Executor failed|Process \S{1,80} .{0,20}died with exit code|Error in inspecting "
        r"model|failed to be inspected",
        "a worker process ended: its own error is above in the log",
        general=True,
    ),
    Cause(
        "request-failed",
        r"Error in (?:chat )?(?:completion|message|token generation|\S{1,80}) stream (?:generator|converter)|Exception "
        r"caught\. Request id"
        r"|HTTPException caught|RequestValidationError caught|failed with an internal error during|Error in "
        r"preprocessing prompt"
        r"|Error in (?:create_messages|parser creation|tool parser creation)|Exception in ASGI application"
        r"|ChatCompletionStreamResponse"
        r"|Internal [Ss]erver [Ee]rror",
        "a request failed: the error before it, or in the same traceback, is the cause",
        general=True,
    ),
    Cause(
        "engine-core-died",
        r"Engine core (initialization failed|process .{0,40}died)|EngineDeadError|EngineCore (encountered|died "
        r"unexpectedly"
        r"|failed)|AsyncLLM output_handler failed|engine is dead|Engine process .{0,40}(died|failed)|Exception "
        r"occurred while "
        r"running API servers|Application startup failed|Error raised in subprocess|DP Coordinator process failed"
        r"|raise self\._format_exception\(|RuntimeError: "
        r"cancelled\s{0,20}$|engine_core\.get_output_async\(|engine_dead|Engine loop (?:is not|has)",
        "the engine's core process ended: the first error of EngineCore or of a Worker above in the log is the cause",
        general=True,
    ),
    Cause(
        "rpc-timeout",
        r"RPC call to \w{1,80} timed out|TimeoutError: RPC",
        "a worker did not answer in time: a hung card, or a collective (NCCL) that another card or host does not "
        "join: look "
        "for the first error of another worker, for an Xid (`journalctl -k --grep Xid`), and check the network between "
        "hosts; a slow first compilation needs a larger VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
    ),
    Cause(
        "cannot-find-any-model-weights-with",
        r"Cannot find any (?:\w{1,80} )?model weights with|No model weights found in|Cannot find any safetensors",
        "model files are missing",
        check="W06",
    ),
    Cause(
        "weights-mismatch",
        r"There is no module or parameter named|Following weights were not initialized from checkpoint|size mismatch "
        r"for |KeyError: '?[\w.]{0,80}(model|layers|blocks|lm_head|visual|weight|experts|proj|norm|embed)\w{0,80}\."
        r"|KeyError: '?[\w.]{1,80}\.(?:weight|bias|qweight|scales)|Attempted to load weight|Tried to load weights of "
        r"size|loaded_weight\.shape|are not in the checkpoint|has no parameter|No module or parameter named|Missing "
        r"keys .{0,80}in loaded state|missing QKV parts|[Uu]nexpected key\(?s?\)? in state_dict|Expected "
        r"\w{1,80}_weight first dimension",
        "the names or shapes of the checkpoint's weights do not fit the model code of this vLLM version: use the "
        "version "
        "that the model's page names, or another export of the model",
        names=r"KeyError: '?([^\s']{1,80})|(?:named|parameter|for) '([^']{1,80})'",
    ),
    Cause(
        "tokenizer",
        r"Couldn't instantiate the backend tokenizer|Tokenizer class \w{1,80} does not exist"
        r"|(?:tiktoken\.model|tokenizer\.\w{1,80}) not found|SentencePiece|tokenizer .{0,60}(?:could not be|cannot be) "
        r"loaded|data did "
        r"not match any variant of untagged enum|PyPreTokenizerTypeWrapper|Unsupported tokenizer|TokenizersBackend",
        "the tokenizer's files are missing, or were made by another version of transformers than this vLLM loads: use "
        "the transformers that vLLM pins, or a newer vLLM",
        check="W06",
        names=r"class (\w{1,60})|(\w{1,40}Tokenizer\w{0,80})",
    ),
    Cause(
        "chat-template",
        r"does not define a chat template|no chat template is (set|defined)|default chat template is "
        r"no longer allowed|chat template path doesn't exist|appears path-like, but doesn't exist"
        r"|ChatTemplateResolutionError",
        "the model has no chat template, or the file of `chat_template` does not exist: set it, or use an "
        "-it/-instruct "
        "model or /v1/completions",
    ),
    Cause(
        "tool-parser",
        r"invalid tool call parser|invalid reasoning parser|[Tt]ool choice requires --enable-auto-tool-choice"
        r"|[Pp]arser:? ?'.{0,60}'? ?.{0,20}(?:not found|not been registered)"
        r"|[Tt]ool (?:call )?parser .{0,40}(?:unknown|not registered|does not exist)|KeyError: "
        r".{0,40}(?:tool|reasoning) "
        r"parser"
        r"|enable-auto-tool-choice requires|reasoning_parser_name=",
        "tool calls need enable_auto_tool_choice and a tool_call_parser, and both parsers a name that this version "
        "has: the line lists them",
        names=r"[Pp]arser(?:: ?|:? ')([\w-]{2,40})",
    ),
    Cause(
        "custom-allreduce-is-disabled-because",
        r"Custom allreduce is disabled because",
        "cards communicate through NCCL instead",
        harmless=True,
    ),
    Cause(
        "support-for-transformers-v4-is-deprecated",
        r"Support for Transformers v4 is deprecated",
        "this vLLM version still supports it",
        harmless=True,
    ),
    Cause(
        "cannot-use-fa-version-2",
        r"Cannot use FA version 2",
        "cards below compute capability 8.0 need another backend",
        harmless=True,
    ),
    Cause(
        "unknown-vllm-environment-variable-detected",
        r"Unknown vLLM environment variable detected",
        "this version does not use it",
        harmless=True,
    ),
    Cause(
        "leaked-shared-memory",
        r"resource_tracker: There appear to be|destroy_process_group\(\) was not called",
        "a consequence of the end of the process",
        harmless=True,
    ),
    *OPTION_CAUSES,
    *REQUEST_CAUSES,
    *(cause for cause in COMMON_CAUSES if cause is not DRAFTING_FAULT),
    *FORMS,
)
