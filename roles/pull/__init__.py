"""Programs of a box that pulls its generations; they need the standard library and ssh-keygen only."""
