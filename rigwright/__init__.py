"""The domain: the target state of a rig and its needs."""
