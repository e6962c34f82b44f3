"""Keys of engines and variants."""
