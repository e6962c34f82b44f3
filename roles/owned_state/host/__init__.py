"""What runs on hosts to digest what a deploy owns, of the standard library alone: sent there as text."""
