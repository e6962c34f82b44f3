"""A rig's bill of materials in CycloneDX: its locked parts, and the advisories that cover them. Contacts no host."""
