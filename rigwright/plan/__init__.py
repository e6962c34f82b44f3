"""What a deploy does on one host, in order, and why."""
