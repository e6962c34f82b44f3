"""What runs on a host to tell of its cards: Python 3.10 and nvidia-ml-py."""
