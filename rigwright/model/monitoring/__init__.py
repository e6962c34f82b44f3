"""Keys of monitoring, and its state on a host."""
