"""Cards, driver and toolkit: what they should be, and how the vendor's tools say what they are."""
