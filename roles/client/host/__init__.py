"""What asks on a host: Python's own library alone, sent there by `roles.client` and kept nowhere."""
