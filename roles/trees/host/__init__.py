"""What runs on hosts, of the standard library alone: sent there as text, and nothing of it stays."""
