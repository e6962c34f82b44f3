"""Print it."""

from __future__ import annotations

import json
import os
import sys

from lab.vllm_snapshot.config_models import Json
from lab.vllm_snapshot.options import take_snapshot


def render_snapshot(made: Json) -> str:
    """A snapshot as it is written to a file."""
    lines = [f' "version": {json.dumps(made["version"])}']
    options = ",\n".join(f"  {json.dumps(one)}" for one in made["options"])
    lines.append(f' "options": [\n{options}\n ]')
    models = (
        f"  {json.dumps(name)}: {{\n"
        + ",\n".join(f"   {json.dumps(key)}: {json.dumps(field)}" for key, field in fields.items())
        + "\n  }"
        for name, fields in made["models"].items()
    )
    lines.append(' "models": {\n' + ",\n".join(models) + "\n }")
    for table in ("variables", "names"):
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in made[table].items())
        lines.append(f' "{table}": {{\n{rows}\n }}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Print it; vLLM's output during its import goes elsewhere."""
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        del os.environ[name]
    saved = os.dup(1)
    os.dup2(2, 1)
    made = render_snapshot(take_snapshot())
    sys.stdout.flush()
    os.dup2(saved, 1)
    print(made, end="")


if __name__ == "__main__":
    main()
