"""What is served, as generations of units, and what is served now."""
