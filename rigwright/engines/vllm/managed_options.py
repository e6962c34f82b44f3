"""What of vLLM's options and variables no catalogue says, and what older versions had, which guides still name."""

from __future__ import annotations

from collections.abc import Mapping

_CLI = "vllm/engine/arg_utils.py of this version has none"
_ENVS = "vllm/envs.py of this version has none"
# What older versions took and guides still name: name -> what to write instead, source.
REMOVED = {
    "speculative-model": ("speculative-config = {model = ...}", _CLI),
    "num-speculative-tokens": ("speculative-config = {num_speculative_tokens = ...}", _CLI),
    "speculative-max-model-len": ("speculative-config = {max_model_len = ...}", _CLI),
    "speculative-draft-tensor-parallel-size": ("speculative-config = {draft_tensor_parallel_size = ...}", _CLI),
    "ngram-prompt-lookup-max": ("speculative-config = {prompt_lookup_max = ...}", _CLI),
    "ngram-prompt-lookup-min": ("speculative-config = {prompt_lookup_min = ...}", _CLI),
    "log-level": ("the variable VLLM_LOGGING_LEVEL, and uvicorn-log-level", _CLI),
    "enable-reasoning": ("reasoning-parser alone", _CLI),
    "disable-log-requests": ("nothing: requests are not logged unless enable-log-requests is given", _CLI),
    "guided-decoding-backend": ("structured-outputs-config = {backend = ...}", _CLI),
    "swap-space": ("nothing: sequences are always recomputed", _CLI),
    "num-scheduler-steps": ("nothing: there is only one step", _CLI),
    "use-v2-block-manager": ("nothing", _CLI),
    "device": ("nothing: the environment's build determines the device", _CLI),
    "worker-use-ray": ('distributed-executor-backend = "ray"', _CLI),
    "max-seq-len-to-capture": ("max-cudagraph-capture-size", _CLI),
    "cuda-graph-sizes": ("cudagraph-capture-sizes", _CLI),
    "rope-scaling": ("hf-overrides = {rope_parameters = {...}}", _CLI),
    "rope-theta": ("hf-overrides = {rope_parameters = {rope_theta = ...}}", _CLI),
    "preemption-mode": ("nothing: sequences are always recomputed", _CLI),
}
REMOVED_VARIABLES = {
    "VLLM_ATTENTION_BACKEND": ("the flag attention-backend", _ENVS),
    "VLLM_FLASH_ATTN_VERSION": ("the flag attention-config = {flash_attn_version = ...}", _ENVS),
    "VLLM_USE_V1": ("nothing: there is no other engine", _ENVS),
    "VLLM_USE_FLASH_ATTN": ("the flag attention-backend", _ENVS),
    "VLLM_USE_TRITON_FLASH_ATTN": ("the flag attention-backend", _ENVS),
    "VLLM_ALL2ALL_BACKEND": ("the flag all2all-backend", _ENVS),
    "VLLM_TORCH_PROFILER_DIR": ("the flag profiler-config", _ENVS),
    "VLLM_USE_PRECOMPILED_WHEEL": ("nothing: it is a build setting", _ENVS),
}
_SOCKET = "an instance listens where its unit says"
_KEY = "an instance's key is a credential, never an argument"
_TLS = "listeners have TLS, engines have none"
_HUB = "models are locked and already on the host"
_HOSTS = "an instance runs on one host"
_READY = "instances must answer chat completions"
_ENDS = "it prints something and exits"
# Options that no catalogue has a say in, by all of their names -> why
MANAGED_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("host", "port", "uds", "root-path", "grpc", "headless"), _SOCKET),
    **dict.fromkeys(("api-key",), _KEY),
    **dict.fromkeys(("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-cert-reqs", "ssl-ciphers"), _TLS),
    **dict.fromkeys(("enable-ssl-refresh",), _TLS),
    **dict.fromkeys(("model", "served-model-name", "tokenizer"), "the key `model` sets the model"),
    **dict.fromkeys(("chat-template",), "the model's key `chat_template` selects the file"),
    **dict.fromkeys(("revision", "code-revision", "tokenizer-revision", "hf-token", "download-dir"), _HUB),
    **dict.fromkeys(("hf-config-path",), _HUB),
    **dict.fromkeys(("master-addr", "master-port", "nnodes", "node-rank", "data-parallel-address"), _HOSTS),
    **dict.fromkeys(("data-parallel-rank", "data-parallel-start-rank", "data-parallel-size-local"), _HOSTS),
    **dict.fromkeys(("data-parallel-rpc-port", "data-parallel-hybrid-lb", "data-parallel-external-lb"), _HOSTS),
    **dict.fromkeys(("runner", "convert", "tokens-only", "mm-encoder-only", "skip-tokenizer-init"), _READY),
    "config": "its file would set options outside the catalogue",
    "help": _ENDS,
}
# The same of variables: what units, engines and environments set.
_UNIT = "an instance's unit sets it"
MANAGED_VARIABLES: Mapping[str, str] = {
    "VLLM_API_KEY": _KEY,
    **dict.fromkeys(("VLLM_HOST_IP", "VLLM_PORT", "VLLM_LOOPBACK_IP", "VLLM_RPC_BASE_PATH"), _SOCKET),
    **dict.fromkeys(("VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL", "VLLM_DP_SIZE", "VLLM_DP_MASTER_IP"), _HOSTS),
    **dict.fromkeys(("VLLM_DP_MASTER_PORT", "LOCAL_RANK"), _HOSTS),
    **dict.fromkeys(("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_ASSETS_CACHE", "HOME", "TMPDIR", "USER"), _UNIT),
    **dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"), _UNIT),
    **dict.fromkeys(("TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "CREDENTIALS_DIRECTORY"), _UNIT),
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"), _UNIT),
    **dict.fromkeys(("CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"), "the environment sets it"),
    **dict.fromkeys(("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT"), _HUB),
    **dict.fromkeys(("VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK", "DO_NOT_TRACK"), "telemetry is off"),
    **dict.fromkeys(("VLLM_USAGE_STATS_SERVER", "VLLM_USAGE_SOURCE"), "telemetry is off"),
    "VLLM_TARGET_DEVICE": "the environment's build determines the device",
}
# Formats of weights that are read from files that lie beside config.json; others ask a server, or make weights up.
LOAD_FORMATS = ("auto", "bitsandbytes", "fastsafetensors", "hf", "mistral", "npcache", "pt", "safetensors")
