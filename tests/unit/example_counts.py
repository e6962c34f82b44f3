"""How many examples a property is held against: fewer where time is short, and the same ones each time."""

from hypothesis import settings


def example_count(number: int) -> int:
    """All of so many examples in `rigwright test all`, and a fifth of them in `rigwright test`."""
    return number // 5 if settings.get_current_profile_name() == "quick" else number
