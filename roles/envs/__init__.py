"""Programs of environments: the role engines sends them to hosts as texts."""
