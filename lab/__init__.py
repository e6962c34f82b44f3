"""Throwaway Debian hosts: real systemd, sshd and apt in systemd-nspawn, for trying things and for tests."""
