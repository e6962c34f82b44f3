"""Lock files that tests write or change: sealed as `rigwright lock` would have."""

import re

from rigwright.supply.lock import rows_digest
from rigwright.toml import tomllib


def render_sealed_lock(*rows: str) -> str:
    """A lock file with these rows."""
    return reseal_text(f'schema = 1\nartefacts = {len(rows)}\ndigest = ""\n' + "".join(rows))


def reseal_text(text: str) -> str:
    """A lock file whose rows were changed, with its present digest; an invalid one stays as it is."""
    try:
        rows = tomllib.loads(text).get("artefact", [])
    except tomllib.TOMLDecodeError:
        return text
    return re.sub(r'^digest = ".*"$', f'digest = "{rows_digest(rows)}"', text, count=1, flags=re.MULTILINE)
