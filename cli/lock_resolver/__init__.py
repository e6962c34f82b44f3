"""Resolving: from what catalogues ask for to locked files, over the network."""
