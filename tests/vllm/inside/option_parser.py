"""The results of vLLM's own parser for each of its options with good and with bad values: JSON.

Printed is a list of [option without dashes, value or true, what it says where it refuses, or ""].
"""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from importlib import import_module
from typing import Any

from lab.vllm_snapshot.options import serve_parser

WORDS = (
    *(
        "1",
        "0",
        "-1",
        "+7",
        "2.5",
        "-0.5",
        ".5",
        "1e3",
        "16k",
        "16K",
        "1.5k",
        "1.5K",
        "2x",
        "auto",
        "AUTO",
        "None",
        "dummy",
    ),
    *("true", "x", "X", "/etc/passwd", "a b", "a=b", "a,b", "{}", '{"x": 1}', "{x}", "[1]", '["x"]', "null", '"x"'),
)
VALUES: tuple[Any, ...] = (True, 1, 0, -1, 2.5, "x", "", None, [], [1], ["x"], [1, "x"], {}, {"x": 1}, {"x": "y"})


def option_cases(action: Any) -> Iterator[tuple[str, Any]]:
    """Options as they could be written, for one action of the parser."""
    for option in action.option_strings:
        name = option.lstrip("-")
        yield name, True
        if not option.startswith("--"):
            continue
        for word in WORDS if not option.startswith("--no-") else WORDS[:3]:
            yield name, word
        for choice in action.choices or ():
            yield from ((name, spelling) for spelling in {str(choice), str(choice).upper(), f"{choice}x"})
        if action.nargs == "+":
            yield from ((name, several) for several in ([1, 2], ["a", "b"], ["1", "x"], ["-x"]))
        yield from ((name[: len(name) - cut], "1") for cut in (1, 3) if len(name) > 8)
        yield name.replace("-", "_"), "1"


def field_cases(action: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Configurations with one key each, for an option whose value is one."""
    cells = [cell.cell_contents for cell in getattr(action.type, "__closure__", None) or ()]
    for kind in (action.type, *cells):
        if defaults := [one for one in getattr(kind, "__defaults__", None) or () if isinstance(one, type)]:
            for key in import_module("pydantic").TypeAdapter(defaults[0]).json_schema()["properties"]:
                yield from ((name, {key: value}) for value in VALUES)
            yield name, {"no_such_key": 1}


def main() -> None:
    """Try them all."""
    saved = os.dup(1)
    os.dup2(2, 1)
    real, found = serve_parser(), []
    for action in real._actions:
        if action.option_strings and action.dest not in ("help", "config"):
            tried = [*option_cases(action), *field_cases(action, action.option_strings[0][2:])]
            found += [[name, value, parser_verdict(real, action, name, value)] for name, value in tried]
    sys.stdout.flush()
    os.dup2(saved, 1)
    json.dump(found, sys.stdout)


def parser_verdict(real: Any, action: Any, name: str, value: Any) -> str:
    """The parser's verdict about one option."""
    dashed = f"--{name}" if f"-{name}" not in action.option_strings else f"-{name}"
    words = [dashed]
    if isinstance(value, list):
        words = [dashed, *map(str, value)]
    elif value is not True:
        words = [f"{dashed}={json.dumps(value) if isinstance(value, dict) else value}"]
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            real.parse_args(["model", *words])
    except SystemExit:
        return said.getvalue().strip().rpartition("\n")[2] or "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main()
