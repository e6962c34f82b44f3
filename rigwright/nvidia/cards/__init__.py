"""The cards: nvidia-smi's and the kernel's reports of them, their settings, and whether those are right."""
