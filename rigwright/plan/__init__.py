"""The steps of a deploy on one host, in order, and why."""
