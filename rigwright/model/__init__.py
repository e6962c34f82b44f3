"""Plain data and its rules: the texts of inventories and catalogues, and the rig that they make."""
