"""What becomes of a packet on a host: its rules, read and followed as the kernel does."""
