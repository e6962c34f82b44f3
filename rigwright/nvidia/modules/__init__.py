"""The driver's kernel modules: their flavour, their options, and whether they are there at the next boot."""
