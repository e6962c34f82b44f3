"""What `rigwright bundle` brings together, and where from."""
