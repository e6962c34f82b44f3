"""The program that exports the metrics of a host's cards: Python 3.10 and nvidia-ml-py."""
