"""Programs for environments on hosts: what puts one together stands alone, what judges it is a package."""
