"""What serves: one folder a kind."""
