"""llama.cpp, compiled from locked source."""
