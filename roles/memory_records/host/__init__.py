"""Programs that hosts run to record the memory of starts."""
