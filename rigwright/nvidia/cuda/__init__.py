"""The CUDA toolkit: which one a rig builds with, and which may not."""
