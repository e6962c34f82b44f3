"""One module a role: code that brings one aspect of a rig to its desired state."""
