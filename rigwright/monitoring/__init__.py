"""Watching: what a box tells of itself, and what on one box of a fleet asks, keeps and alerts."""
