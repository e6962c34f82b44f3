"""vLLM, in an environment of locked wheels."""
