"""Causes in what vLLM says of its options and of the model: memory, parallelism, drafting, quantisation, adapters.

Sources: the errors that vLLM 0.20 raises in vllm/config, engine, v1, model_executor, lora and platforms.
"""

from __future__ import annotations

from rigwright.engines.log_causes import Cause

_FULL = r"(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory|torch\.(?:cuda\.)?OutOfMemoryError"

_PAGE_SIZE = (
    "the KV caches of the model's layers (hybrid, Mamba, several head sizes) have page sizes that do not divide each "
    'other, most often by the type of the KV cache: set kv_cache_dtype = "auto", remove block_size, or use a newer '
    "vLLM"
)

MEMORY = (
    Cause(
        "graph-memory",
        _FULL,
        "the card's memory is full while CUDA graphs are captured: lower gpu_memory_utilization or max_num_seqs, or "
        "set "
        "cudagraph_capture_sizes",
        context=r", in (?:capture_model|_capture_cudagraphs|capture_graphs?)\b",
    ),
    Cause(
        "profile-memory",
        _FULL,
        "the card's memory is full in the trial run at start: lower max_num_batched_tokens, max_num_seqs or the size "
        "of "
        "images (limit_mm_per_prompt)",
        context=r", in (?:profile_run|_dummy_run|determine_available_memory|profile_\w{1,80})\b",
    ),
    Cause(
        "memory-profile",
        r"Error in memory profiling|Initial free memory .{0,120}current free memory",
        "another process freed or took card memory while vLLM measured it: start when no other program changes its "
        "use of the card",
        check="N04",
    ),
    Cause(
        "warm-up-memory",
        r"CUDA out of memory occurred when warming up|Please try lowering `?max_num_seqs",
        "the card's memory is full at warm-up: lower max_num_seqs or gpu_memory_utilization",
    ),
    Cause(
        "weights-memory",
        rf"{_FULL}|not enough GPU memory",
        "the card's memory is full while weights load: use a smaller quantisation or more cards "
        "(tensor_parallel_size), or "
        "free the card",
        context=r"not enough GPU memory|, in (?:load_model|load_weights|process_weights_after_loading"
        r"|initialize_model)\b",
    ),
    Cause(
        "workspace",
        r"Workspace is locked but allocation",
        "a kernel needs a larger workspace than vLLM reserved at start, a fault of vLLM: set enforce_eager = true, "
        "lower "
        "max_num_batched_tokens, or use another version",
    ),
    Cause(
        "pinned-memory",
        r"UVA is not available|OS call failed or operation not supported on this OS|CUDA_ERROR_OPERATING_SYSTEM"
        r"|cudaErrorOperatingSystem|cudaHostRegister failed|cudaHostAlloc.{0,60}failed|[Cc]annot pin memory"
        r"|[Pp]in_memory.{0,60}fail",
        "the system refuses to pin host memory: raise the limit of locked memory (ulimit -l, `--ulimit memlock=-1` of "
        "a "
        "container) and leave RAM free; in WSL set VLLM_WSL2_ENABLE_PIN_MEMORY=1 (or VLLM_USE_V2_MODEL_RUNNER=0); "
        "while "
        "serving, another attention_backend or fewer requests at once may avoid it",
    ),
    Cause(
        "encoder-budget",
        r"exceeds the (?:pre-allocated )?encoder cache|encoder (?:cache|compute) (?:size|budget)|Chunked MM input|to "
        r"be (?:smaller|less) than .{0,60}multimodal|max_tokens_per_mm_item|profil\w{1,80} .{0,60}multi-?modal "
        r".{0,60}fail",
        "one image, video or sound needs more tokens than a batch holds: raise max_num_batched_tokens, or lower "
        "limit_mm_per_prompt",
    ),
)

KERNELS = (
    Cause(
        "flashinfer-architecture",
        r"No supported CUDA architectures found|FlashInfer requires GPUs with sm",
        "FlashInfer compiles no kernel for this card: the CUDA toolkit that it finds is too old for the card (sm_120 "
        "and sm_121 need 12.9 or newer; CUDA_HOME names it), FLASHINFER_CUDA_ARCH_LIST lacks the card, or this "
        "version has no such kernel for it: correct that, or use another backend (attention_backend, moe_backend, "
        "VLLM_USE_FLASHINFER_SAMPLER=0)",
        names=r"(major versions \[[\d, ]{1,40}\])",
    ),
    Cause(
        "flashmla-missing",
        r"flashmla\w{0,80} is not available|was not compiled due to insufficient nvcc",
        "this build has no FlashMLA kernels for the card (they are for Hopper and newer): use a build or image with "
        "kernels for it, or another MLA backend (attention_backend) where the model allows one",
        names=r"(\w{0,20}flashmla\w{0,20}) is not",
    ),
)

EARLY = (*MEMORY, *KERNELS)
"""Those that come before the general ones of vLLM's table."""

PARALLEL = (
    Cause(
        "experts-not-divisible",
        r"experts\w{0,80}(?:=\d{1,20})? must be divisible by ep_size",
        "the model's experts cannot be divided evenly among the ranks of expert parallelism: use a number of ranks "
        "that divides them, or set num_redundant_experts so that their sum divides",
        names=r"(\w{0,80}experts=\d{1,20} must be divisible by ep_size=\d{1,20})",
    ),
    Cause(
        "pipeline-parallel",
        r"Pipeline parallelism is not supported|PP is not supported for this model|sum\(partitions\)|does not match "
        r"pp_size",
        "this model cannot be split by layers over cards: use tensor_parallel_size in place of pipeline_parallel_size",
    ),
    Cause(
        "expert-parallel",
        r"EPLB.{0,80}(?:not|only|requires|must|unavailable)|True to use EPLB|[Ee]xpert[ _]parallel.{0,100}(?:must|not"
        r"|only|requires)|enable_expert_parallel must|[Ee]lastic EP (?:is|requires)",
        "expert parallelism does not fit this model or the other options: remove enable_expert_parallel and "
        "enable_eplb, "
        "or set the options that the line names",
    ),
    Cause(
        "context-parallel",
        r"\b(?:DCP|PCP)\b.{0,60}(?:not support|requires)|dcp_size|decode context parallel|[Pp]refill context parallel",
        "context parallelism does not fit this model or attention backend: remove the context_parallel options",
    ),
    Cause(
        "data-parallel",
        r"data[_ ]parallel\w{0,80}.{0,120}(?:must|only|can't|cannot|not )|DP Coordinator process failed|DP master node"
        r"|Configuration mismatch detected for engine|external_lb|hybrid_lb",
        "the data-parallel options contradict each other, the model or another option, or differ between the "
        "processes: the "
        "line names it",
    ),
    Cause(
        "engine-start-timeout",
        r"Timed out waiting for (?:new )?engine core processes|Did not receive response from front-end process"
        r"|Timeout waiting for .{0,60}(?:engine|worker)|Worker .{0,30}failed to initialize within",
        "the engine's processes took longer to start than the limit, for example with slow disks or many kernels to "
        "compile: "
        "raise VLLM_ENGINE_READY_TIMEOUT_S, and look for an error of a process",
    ),
    Cause(
        "host-address",
        r"VLLM_HOST_IP(?!=)|VLLM_LOOPBACK_IP(?!=)|should have a unique IP|VLLM_PORT '.{0,100}' appears to be a URI",
        "vLLM chose a wrong address or port of the host: set VLLM_HOST_IP (and on Kubernetes name the service other "
        "than `vllm`, which sets VLLM_PORT)",
    ),
    Cause(
        "kv-connector-model",
        r"[Ee]xternal KV connector|KV connector.{0,80}(?:hybrid|mamba|Mamba|HMA|not verified|not support|n't support)"
        r"|(?:hybrid|[Mm]amba|HMA).{0,80}KV connector|Connector \S{1,60} does not support|connector.{0,60}does not "
        r"support HMA",
        "the KV connector (kv_transfer_config: LMCache, NIXL, Mooncake, offloading) does not work with this kind of "
        "model "
        "(hybrid, Mamba layers) in this version: remove it, or use a version that supports the two together",
        names=r"Connector '?(\w{1,60})'?|(\w{2,60}Connector)",
    ),
    Cause(
        "kv-connector",
        r"(?:NIXL|[Nn]ixl|LMCache|[Mm]ooncake|MoRIIO|FlexKV|KVTransferConfig|kv_connector|kv_role|ec_connector"
        r"|[Kk]v_transfer)"
        r".{0,200}(?:not (?:available|installed|registered|support)|fail|error|mismatch|must|specify|only|invalid"
        r"|set to)|Unsupported connector type|[Kk][Vv] ?[Cc]onnector .{0,100}(?:not found|unknown|failed)",
        "the transfer of KV caches (kv_transfer_config) does not work: its library is missing or has another version, "
        "or "
        "its options differ between the engines; the line names it",
        names=r"Connector '?(\w{1,60})'?|(\w{2,60}Connector)|(NIXL|LMCache|Mooncake|MoRIIO|FlexKV)|type: (\w{2,60})",
    ),
    Cause(
        "kv-page-size",
        r"[Pp]age size .{0,200}(?:not divisible|unify)|Cannot unify by adjusting block_size",
        _PAGE_SIZE,
    ),
    Cause(
        "kv-page-size-assertion",
        r"AssertionError[: ]{0,4}$",
        _PAGE_SIZE,
        context=r"\bunify_kv_cache_spec_page_size\b",
    ),
    Cause(
        "hybrid-kv-cache",
        r"[Hh]ybrid KV cache manager|does not support HMA|disable-hybrid-kv-cache-manager|[Hh]ybrid KV cache is not "
        r"supported"
        r"|KV cache (?:specs|groups).{0,60}(?:different|not support|not compatible)",
        "the model's layers need KV caches of different kinds, which these options do not allow: remove block_size and "
        "the KV connector, or set disable_hybrid_kv_cache_manager",
    ),
    Cause(
        "mamba-cache",
        r"[Mm]amba(?: |_|-)(?:cache[_-]mode|block[_-]size|ssm)\w{0,80}.{0,120}(?:must|not|n't|only|requires)|In "
        r"Mamba cache align mode|Mamba cache .{0,120}(?:must|not|n't|only|requires)|DS conv state layout"
        r"|hash_block_size|GDN only supports|Mamba only supports decode-only|does not support 'all' prefix caching",
        "the state cache of the model's linear-attention layers does not fit these options: turn off prefix caching or "
        "speculative decoding, else set mamba_cache_mode and block_size as the line says",
    ),
)

DRAFT = (
    Cause(
        "draft-vocabulary",
        r"Target and draft model should have the same vocabulary",
        "the draft model has another vocabulary than the model: use the draft model that is made for it",
        names=r"(Target model vocab_size=\d{1,20}\. Draft model vocab_size=\d{1,20})",
    ),
    Cause(
        "mtp-weights",
        r"MTP speculative decoding layer .{0,60}weights missing|mtp.{0,60}(?:weights|layers?).{0,60}(?:missing|not "
        r"found)"
        r"|target_model_config must be present for mtp",
        "the checkpoint has no MTP layers (often quantised away): use one that has them, or remove speculative_config",
    ),
    Cause(
        "draft-interface",
        r"does not support EAGLE3|Unsupported speculative method|Unknown speculative (?:decoding )?method|is only "
        r"supported for .{0,80} models\. Got|Expected "
        r"model "
        r"instance for EAGLE3|Target model does not have|non-causal support, which is required for DFlash",
        "the method of speculative_config does not work with this model: use the method that the model's page names, "
        "or "
        "remove speculative_config",
        names=r"method: '(\w{1,40})'",
    ),
    Cause(
        "draft-options",
        r"num_speculative_tokens.{0,120}(?:must|was|divisible|provided)|is not a valid argument in the "
        r"speculative_config"
        r"|speculative_(?:max_model_len|draft_tensor)|prompt_lookup_m\w{1,80}|required by spec-decode|speculative "
        r"decoding settings"
        r"|A speculative model was provided|decreasing num_speculative_tokens|suffix_decoding_|arctic-inference",
        "values of speculative_config contradict each other or the model: set num_speculative_tokens and the method as "
        "the line says",
        names=r"'(\w{1,40})' is not a valid",
    ),
    Cause(
        "async-scheduling",
        r"[Aa]sync[ _-]scheduling.{0,120}(?:not|only)|does not support async scheduling",
        "async scheduling excludes other options: set async_scheduling = false",
    ),
    Cause(
        "model-runner",
        r"VLLM_USE_V2_MODEL_RUNNER does not yet support",
        "the new model runner lacks an option: set VLLM_USE_V2_MODEL_RUNNER=0",
    ),
)

QUANTISATION = (
    Cause(
        "quantisation-split",
        r"(?:input_size|output_size|[Ww]eight|[Tt]he (?:input|output) size|intermediate_size"
        r"|hidden_size).{0,120}(?:not "
        r"divisible by|not aligned with|must be divisible by).{0,120}|is not divisible by (?:weight quantization )?"
        r"(?:block_[nk]|min_thread|group_size)|Consider reducing tensor_parallel_size",
        "the quantised weights cannot be split over this number of cards, because that would cut their groups: lower "
        "tensor_parallel_size (or use pipeline_parallel_size, or expert parallelism)",
    ),
    Cause(
        "quantisation-unknown",
        r"Unknown quantization method|in the model's quantization config|[Qq]uantization method .{0,120}(?:does not "
        r"match|is deprecated|not supported)"
        r"|Cannot find the config file for|quantization is currently not supported|Unsupported quantization config"
        r"|Setting "
        r"`quantization_config`|conflicts with quantization_config|No quark compatible scheme|No compressed-tensors "
        r"compatible scheme|quantization_config is only supported|does not support BitsAndBytes|Prequant BitsAndBytes"
        r"|is not supported for quantization method|bitsandbytes.{0,60}(?:version|install)",
        "vLLM does not load this quantisation with these options: remove `quantization` so that the model's own is "
        "used, "
        "set the dtype that the line names, or use another checkpoint or engine version",
        names=r"method:? ?\(?'?(\w[\w-]{1,40})|config file for (\w{1,40})",
    ),
    Cause(
        "quantisation-shards",
        r"Detected some but not all shards|different quantization schemes|Mixed quant_algo within fused|All shards "
        r"of fused",
        "the checkpoint quantises parts of a fused layer differently, which vLLM cannot load: use another "
        "checkpoint, or "
        "convert it again with equal quantisation of these layers",
        names=r"(?:shards of|schemes for|fused layer) (\S{1,80})",
    ),
    Cause(
        "kv-cache-type",
        r"(?:kv[_ -]?cache|KV cache|kv_cache_dtype).{0,100}(?:fp8|nvfp4|int8|dtype|quantiz).{0,100}(?:not|n't|only"
        r"|[Uu]nsupport"
        r"|Invalid)|(?:fp8\w{0,80}|FP8|nvfp4|NVFP4|quantized) (?:KV|kv)[- _]?cache.{0,60}(?:not|n't|[Uu]nsupport"
        r"|requires)"
        r"|does not support fp8 kv|TurboQuant KV cache|Chunked-prefill and prefix-cache on the CPU|kv_cache_dtype "
        r"not supported",
        'this attention backend, model or card does not support the type of the KV cache: set kv_cache_dtype = "auto", '
        "or another attention_backend",
        names=r"((?:fp8|nvfp4|int8|turboquant)\w{0,80})",
    ),
)

ADAPTERS = (
    Cause(
        "lora-rank", r"LoRA rank \d{1,9} is greater than max_lora_rank", "raise max_lora_rank to the rank in the line"
    ),
    Cause(
        "lora-model",
        r"does not support LoRA|LoRA .{0,100}not (?:yet )?support|No supported LoRA "
        r"modules|get_expert_mapping|supported_"
        r"lora_modules|LoRA is not supported|SupportsLoRA",
        "this version's code of the model (or an option, as its quantisation) has no LoRA: use a version that has, or "
        "merge the adapter into the weights",
        names=r"\b(\w{1,80}For\w{1,80})",
    ),
    Cause(
        "lora-slots",
        r"No free adapter slots|Number of requested LoRAs|max_cpu_loras|No free lora "
        r"slots|max_loras.{0,60}(?:must|exceed|greater|less|than)",
        "more adapters are in use at once than max_loras (and max_cpu_loras) allow: raise them",
    ),
    Cause(
        "lora-off", r"LoRA is not enabled|[Uu]se .{0,4}--enable-lora", "the server has LoRA off: set enable_lora = true"
    ),
    Cause(
        "lora-adapter",
        r"[Nn]o adapter found for|unsupported LoRA weight|expected target modules|unexpected modules? in "
        r".{0,60}[Ll]o[Rr][Aa]|embedding LoRA size|Loading lora .{0,80}failed|modules_to_save|adapter_config\.json"
        r"|DoRA|[Ll]o[Rr][Aa]\w{0,80} .{0,60}(?:bias|not found|vocab)",
        "the LoRA adapter cannot be loaded: its path or files are wrong, or it has modules, DoRA, bias or vocabulary "
        "that "
        "this version does not support for this model; the line names it",
        names=r"adapter found for (\S{1,80})|oading lora (\S{1,80})|modules in (.{1,60})",
    ),
)

ENGINE = (
    Cause(
        "task",
        r"does not support `--runner|Unsupported task:|does not support any pooling tasks|API is not supported by "
        r"this model"
        r"|is only supported for (?:generative|pooling) models|does not support (?:the )?[\w ()]{2,40} API",
        "the model does not support this kind of request (text, embeddings, scores): set runner and convert for it, or "
        "call the endpoint that fits the model",
        names=r"support (?:the )?([\w ()]{2,40} API)|`(--runner \w{1,80})",
    ),
    Cause(
        "environment-value",
        r"Invalid value '.{0,80}' (?:for|in) VLLM_|Unknown VLLM_\w{1,80}=|VLLM_\w{1,80} must be|must be set to "
        r".{0,60}VLLM_",
        "an environment variable of vLLM has a value that this version refuses: the line lists the allowed ones",
        names=r"(VLLM_\w{2,60})",
    ),
    Cause(
        "load-format",
        r"Load format `.{0,40}` is not supported|Unknown load_format|load_format'? must be|Could not find checkpoint "
        r"files"
        r"|is not a valid tensorizer URI|Unrecognised GGUF reference|Failed to map GGUF parameters|Loading a "
        r"multimodal GGUF"
        r"|Downloaded GGUF files not found|Could not find mm_proj",
        "vLLM cannot load the weights in this format: set load_format and tokenizer as the model needs, or use the "
        "safetensors checkpoint",
    ),
    Cause(
        "dtype",
        r"does not support float16\. Reason|Unknown dtype:|dtype .{0,60}not supported",
        'the model\'s data type does not fit a kernel or the card: set dtype = "bfloat16" (or "half"), or use another '
        "quantisation",
    ),
    Cause(
        "dtype-mix",
        r"expected (?:m1 and m2|mat1 and mat2|scalar type|query, key)|must have the same dtype|Query dtype mismatch"
        r"|self and mat2 must have the same dtype|Input dtype .{0,40}(?:must|not)|expected dtype|[Dd]type mismatch",
        "tensors have different data types, a fault of this version with this model, quantisation, adapter or "
        "draft: "
        "set dtype to the model page's value, or use another version or quantisation",
    ),
    Cause(
        "sleep-mode",
        r"Sleep mode (?:is not supported|can only)|cumem allocator is not available",
        "sleep mode needs CUDA and one instance per process: remove enable_sleep_mode",
    ),
    Cause(
        "plugin",
        r"Failed to load (?:LogitsProcessor )?plugin|Only one platform plugin can be activated|IO ?Processor "
        r"plugins? .{0,40}not",
        "a plugin of vLLM does not load or is missing: install the version for this vLLM, or name the allowed ones in "
        "VLLM_PLUGINS",
        names=r"plugin ([\w.-]{2,60})|the '([\w.-]{1,60})'",
    ),
    Cause(
        "numa",
        r"numa_bind|NUMA binding|numactl is required|Allowed NUMA nodes",
        "binding to NUMA nodes is not possible: install numactl, or remove the numa options",
    ),
)

OPTION_CAUSES = (*PARALLEL, *DRAFT, *QUANTISATION, *ADAPTERS, *ENGINE)
