"""Programs that run on hosts: each stands alone, and is sent there as a text."""
