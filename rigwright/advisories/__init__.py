"""Published advisories held against what a rig is made of: which are open, closed or unknown on it, and why. Pure."""
