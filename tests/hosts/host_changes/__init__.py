"""Changes of a host that the checks must report at first sight, harmless changes, and their runner."""
