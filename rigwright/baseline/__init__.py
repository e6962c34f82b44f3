"""How fast a box was, is, and may be: runs of `bench speed`, what was accepted of them, and what is slower."""
