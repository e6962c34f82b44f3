"""Signatures of locks, bundles and verdicts: DSSE envelopes that ssh-keygen signs and verifies.

It uses the standard library and ssh-keygen only.
"""
