"""Declarations of inventories and the catalogue, read and refused."""
