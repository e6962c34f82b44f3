"""The driver's packages: which are wanted, what apt would do for them, and whether they stay so."""
