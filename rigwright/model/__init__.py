"""Plain data and its rules: what inventories and catalogues say, and the rig that they make."""
