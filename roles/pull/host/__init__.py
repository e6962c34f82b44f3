"""The program that pulls: `fetch` has no rights, and `run` verifies and activates."""
