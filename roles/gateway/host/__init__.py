"""What runs on a host to serve the gateway: Python 3.10 and its standard library, nothing else."""
