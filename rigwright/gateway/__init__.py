"""The way in: one address that clients of all instances speak to."""
