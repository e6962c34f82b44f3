"""The serving side as generations of units, and its observed state."""
