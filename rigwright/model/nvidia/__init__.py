"""The table of drivers, and their versions."""
