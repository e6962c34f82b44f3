"""What runs on a host to bring weights and keep them verified: Python 3.10 and its standard library, nothing else."""
