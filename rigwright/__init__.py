"""The domain: what a rig is and what it needs."""
