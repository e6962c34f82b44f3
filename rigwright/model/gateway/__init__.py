"""Keys of the gateway."""
