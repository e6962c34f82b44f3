"""The cards: what nvidia-smi and the kernel say of them, what they are set to, and whether that is right."""
