"""Predicted and measured memory of real engines with models of random weights. Needs Python alone.

`python -m benchmarks.memory_fit --server LLAMA_SERVER --models FOLDER [--cards 1]`
"""
