"""Pull mode: a box fetches its signed generation itself."""
