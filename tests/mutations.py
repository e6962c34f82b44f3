"""Removes protections one at a time and runs the tests that must notice: `python -m tests.mutations [-k WORDS]`.

Each row of mutations.toml names a file, the text of a protection, the text that removes it, and the tests of
`./rig test` that fail without it. The runner works on a copy of the committed tree, so the checkout stays as it is.
In a text `<1>` stands for any name, the same each time. A file that has another path now is found by the text.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
NAME = re.compile("<([1-9])>")
FOLDERS = ("rigwright", "roles", "checks", "cli", "templates")
SUFFIXES = (".py", ".j2", ".lua")
LIMIT = 600
"""Seconds that the tests of one mutation may take. A mutation that makes a test hang counts as detected."""


@dataclass(frozen=True)
class ProtectionMutation:
    """One protection and the tests that notice its removal."""

    protects: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of the protection's text."""
        numbers = set[str]()
        parts = NAME.split(self.old)
        for at, part in enumerate(parts):
            # text split by a pattern with one group has the matches at the odd places
            parts[at] = re.escape(part) if at % 2 == 0 else f"(?P=n{part})" if part in numbers else rf"(?P<n{part}>\w+)"
            numbers |= {part} if at % 2 else set()
        return re.compile("".join(parts))

    def locate(self, tree: Path) -> Path:
        """The file of a tree that has the protection.

        Raises:
            ValueError: the text is missing there, or occurs more than once.
        """
        path = tree / self.file
        files = [path] if path.exists() else [one for folder in FOLDERS for one in (tree / folder).rglob("*.*")]
        found = [one for one in files if one.suffix in SUFFIXES for _ in self.pattern.finditer(one.read_text())]
        if len(found) != 1:
            raise ValueError(f"{self.protects}: the text occurs {len(found)} times: {', '.join(map(str, found))}")
        return found[0]

    def apply(self, path: Path) -> str:
        """Remove the protection from its file; returns the file's text as it was."""
        text = path.read_text()
        path.write_text(self.pattern.sub(lambda found: NAME.sub(lambda name: found[f"n{name[1]}"], self.new), text))
        return text


def load_mutations() -> list[ProtectionMutation]:
    """The rows of the table, in its order."""
    rows = tomllib.loads(TABLE.read_text())["mutation"]
    return [ProtectionMutation(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def is_detected(mutation: ProtectionMutation, tree: Path) -> bool:
    """Whether a test of `./rig test` fails while the protection is missing from the tree."""
    path = mutation.locate(tree)
    original = mutation.apply(path)
    try:
        return run_tests(mutation.tests, tree) == 1
    finally:
        path.write_text(original)


def run_tests(tests: Sequence[str], tree: Path) -> int:
    """Run tests as `./rig test` does, from the tree; returns pytest's exit status, 1 after the limit."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--quick", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(
            command, cwd=tree, env=environment, timeout=LIMIT, stdout=subprocess.DEVNULL, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return 1


def main() -> None:
    """Run the mutations that the arguments select; exit status 1 if one is not detected."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-k", default="", metavar="WORDS", help="only mutations whose description contains this")
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    options = parser.parse_args()
    mutations = [one for one in load_mutations() if options.k in one.protects]
    missed = 0
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    with tempfile.TemporaryDirectory() as folder:
        if not options.list:
            archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            if status := run_tests(tests, Path(folder)):
                sys.exit(
                    f"the tests of these mutations fail on the committed tree already: pytest's exit status {status}"
                )
        for mutation in mutations:
            if options.list:
                print(f"{mutation.protects}: {mutation.file}, {' '.join(mutation.tests)}")
                continue
            detected = is_detected(mutation, Path(folder))
            missed += not detected
            print(f"{'detected' if detected else 'MISSED  '}  {mutation.protects}", flush=True)
    if not options.list:
        print(f"{len(mutations) - missed} of {len(mutations)} removed protections are detected")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
