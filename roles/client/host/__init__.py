"""The program that asks on a host: only Python's own library, sent there by `roles.client` and kept nowhere."""
