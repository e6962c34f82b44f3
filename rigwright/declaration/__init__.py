"""What an inventory and the catalogue declare, read and refused."""
