"""Stand-ins for what throwaway hosts fetch from and run on: archives, indexes, cards, kernels, vLLM for the CPU."""
