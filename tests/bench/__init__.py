"""Every bench once, small: what nobody runs rots. Figures depend on the machine, so none is asserted."""
