"""The program that digests Rigwright's own state on hosts, of the standard library only: sent there as text."""
