"""The program that decides which instances on demand are loaded; a generation has it."""
