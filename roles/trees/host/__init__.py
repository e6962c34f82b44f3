"""The programs for hosts, of the standard library only: sent there as text, and nothing of it stays."""
