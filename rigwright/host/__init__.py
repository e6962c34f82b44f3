"""A host as found, and whether it can become its rig."""
