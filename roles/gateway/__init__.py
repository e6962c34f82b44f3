"""The gateway: one address for all instances."""
