"""Cards, driver and toolkit: their target states, and how the vendor's tools report them."""
