"""Patches: changes to engines that no release has, each bound to the bytes before and after it."""
