"""What of a box may be shown to strangers: a page for a forum or an issue, of nothing but what a list allows."""
