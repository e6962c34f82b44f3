"""Programs for environments on hosts: the builder is a single file, the judge is a package."""
