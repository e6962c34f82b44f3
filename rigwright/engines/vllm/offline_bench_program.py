"""vLLM's own offline benches, with the options of `vllm serve` that they know: by an environment's Python, from its
standard input: WHAT, then the options.

Its result is the last line, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

SAID = "rigwright-offline: "


def known(words: Sequence[str], options: Collection[str]) -> list[str]:
    """Those of some words that are options of a program's, each with its values: a server has more of them.

    Args:
        words: `--name`, `--name=value`, `--name.key=value`, or values of the option before them.
        options: The program's known options, with their dashes.
    """
    found, taken = [], True
    for word in words:
        if word.startswith("--"):
            taken = word.partition("=")[0].partition(".")[0] in options
        if taken:
            found.append(word)
    return found


def main() -> None:
    """Measure, and say what came of it."""
    what, *words = sys.argv[1:]
    try:
        bench = importlib.import_module(f"vllm.benchmarks.{what}")
        parser: Any = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
        bench.add_cli_args(parser)
    except (ImportError, AttributeError) as error:
        sys.exit(f"this vLLM has no {what} bench that can be started: {error}")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        options = parser._option_string_actions  # argparse has no other way to ask
        bench.main(parser.parse_args([*known(words, options), f"--output-json={result}"]))
        sys.stdout.write(f"\n{SAID}{json.dumps(json.loads(result.read_text()))}\n")


if __name__ == "__main__":
    # it came from a pipe: processes of vLLM's own would look for it as a file, to import it again
    globals().pop("__file__", None)
    main()
