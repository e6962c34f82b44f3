"""Locked groups of Debian packages."""
