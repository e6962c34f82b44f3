"""Plugins: wheels of an operator's own that change an engine from inside, and what is known of each."""
