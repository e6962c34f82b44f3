"""Keys of container engines, and the table of their archives."""
