"""Programs that run inside of an environment with vLLM, and import nothing of this repository but lab.vllm_snapshot."""
