"""Measurements of what the project promises to be quick at; `./rig bench` lists them."""
