"""Containers on a rig's cards: the toolkit, Docker or podman, and the specs by which they find the cards."""
