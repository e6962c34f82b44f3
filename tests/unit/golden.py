"""`python -m tests.unit.golden` writes the golden outputs anew: checks, and plans and files of all inventories.

test_golden.py compares each file in data/golden byte for byte. A section holds one text: in full, as the name of an
equal section (`=`), as the difference from a similar one (`~`), or, for programs of this repository that hosts get
unchanged, as their SHA-256. The digest of a generation covers its files: manifests, which have the digests of other
files, and files that equal another host's have no section of their own.
"""

import contextlib
import difflib
import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyinfra_cli  # noqa: F401 (before ssl is imported: it exchanges sockets)

from checks import runner
from checks.results import STATUS
from cli import observed_box, plan
from rigwright.containers import container_files as container_files
from rigwright.monitoring import self_check
from rigwright.monitoring.monitoring_units import monitoring_services
from rigwright.nvidia.driver import driver_files as driver_files
from rigwright.operate.instance_health import BLANK_HOST_FACTS
from rigwright.plan.plan_inputs import TargetState
from rigwright.plan.self_check_declaration import render_self_check
from rigwright.project_root import ROOT
from rigwright.weights import weight_server
from tests.unit.documented_outputs import captured_terminal
from tests.unit.golden_hosts import FOLDER, INVENTORIES, EmptyHost, rigs
from tests.unit.mapped_hosts import map_given_hosts
from tests.unit.samples import NOW

VERBATIM = frozenset(
    hashlib.sha256(path.read_bytes()).hexdigest()
    for folder in ("roles", "templates", "rigwright")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".lua")
)
MANIFEST, FIRST_HOST = "manifest.json", "rig3090/rig3090"


class Texts:
    """Sections of texts, of which equal and similar ones are kept once."""

    def __init__(self) -> None:
        self.earlier: dict[str, list[tuple[str, str]]] = {}
        """Kind -> names and texts of the first and the latest section of that kind."""
        self.names: dict[str, str] = {}
        """Text -> name of the section that has it."""

    def section(self, name: str, text: str, kind: str = "") -> str:
        """One section.

        Args:
            name: Unique over all files.
            text: Its text.
            kind: Sections of one kind resemble each other; empty for none.
        """
        head = f"== {name}"
        if text in self.names:
            return f"{head} = {self.names[text]}\n"
        self.names[text] = name
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest in VERBATIM:
            return f"{head} = SHA-256 {digest}\n"
        shown = text
        if text.startswith("{") and text.count("\n") < 2:
            shown = json.dumps(json.loads(text), indent=1)
            head += f" (SHA-256 {digest}, in one line)"
        earlier = self.earlier.setdefault(kind or name, [])
        forms = [f"{head}\n{_ended(shown)}"]
        for other, before in earlier:
            lines = difflib.unified_diff(before.splitlines(True), shown.splitlines(True), n=0)
            forms.append(f"{head} ~ {other}\n{''.join(map(_ended, lines))}")
        earlier[1:] = [(name, shown)]
        return min(forms, key=len)

    def host(self, name: str, files: Iterable[tuple[str, str]]) -> str:
        """A section for each file of a host; those that another host has, too, with their number and paths' SHA-256."""
        parts, same = list[str](), defaultdict[str, list[str]](list)
        for path, text in files:
            owner, _, other = self.names.get(text, "").partition(" ")
            if other == path:
                same[owner].append(path)
            elif path != MANIFEST or name == FIRST_HOST:
                parts.append(self.section(f"{name} {path}", text, _kind(path)))
        for owner, paths in same.items():
            digest = hashlib.sha256(_rows(*sorted(paths)).encode()).hexdigest()
            parts.append(f"== {name} = {owner}: {len(paths)} files, paths {digest}\n")
        return "".join(parts)


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n\\ no line's end\n"


def planned(boxes: list[EmptyHost], *options: str) -> tuple[str, list[TargetState]]:
    """The output of `plan`, and the target state of each host."""
    made: list[TargetState] = []
    real = plan.build_target_state

    def kept(*arguments: Any) -> TargetState:
        made.append(real(*arguments))
        return made[-1]

    with (
        patch.object(plan, "map_inventory", map_given_hosts(boxes)),
        patch.object(plan, "build_target_state", kept),
        patch.object(observed_box, "read_health", lambda target, rig: BLANK_HOST_FACTS),
        patch.object(plan, "time", SimpleNamespace(time=lambda: NOW)),
        captured_terminal() as printed,
        contextlib.suppress(SystemExit),
    ):
        plan.plan.main([__file__, *options], standalone_mode=False)
    return printed(), made


def inventory(name: str, texts: Texts) -> str:
    """The plan of an inventory, and all files that its hosts get."""
    with TemporaryDirectory() as folder:
        boxes = [EmptyHost(*one) for one in rigs(name, Path(folder).resolve()).items()]
        printed, made = planned(boxes)
        parts = [texts.section(f"{name} plan", printed)]
        if name == "everything":
            parts.append(texts.section(f"{name} plan --json", planned(boxes, "--json")[0]))
        parts += [texts.host(f"{name}/{one.rig.name}", _files(one)) for one in made]
        return "".join(parts).replace(str(Path(folder).resolve()), "FOLDER").replace(str(ROOT), "ROOT")


def _files(one: TargetState) -> Iterator[tuple[str, str]]:
    """Path and text of each file that a host gets."""
    yield "generation", f"{one.generation.digest}\n"
    yield from sorted(one.generation.files.items())
    yield "links", _rows(*(f"{path} -> {target}" for path, target in sorted(one.generation.links.items())))
    yield from sorted(_settings(one))
    for service in monitoring_services(one.rig):
        yield service.unit_name, service.unit
        yield from sorted(service.files.items())
    # its declaration has digests of all files above
    declaration = self_check.declaration_path(one.rig.roots)
    texts = render_self_check(one.rig, one.facts.system)
    yield from ((path, text) for path, text in texts.items() if path != declaration)


def _settings(one: TargetState) -> Iterator[tuple[str, str]]:
    """Files of the driver, of containers and of the share, beside those of a generation."""
    if one.driver:
        yield from (
            (setting.path, setting.text)
            for setting in driver_files.render_locked_settings(
                one.rig.roots,
                one.rig.cards,
                one.rig.driver,
                one.rig.driver_supply,
                one.rig.network,
                one.driver[1],
                one.driver[0],
            )
        )
    if one.containers:
        settings = container_files.render_settings(
            one.rig.roots,
            one.rig.container_supply,
            one.rig.network,
            one.rig.bundle_folder,
            one.containers[1],
            "ubuntu-24.04",
        )
        yield from ((setting.path, setting.text) for setting in settings)
    if one.rig.share:
        yield (
            weight_server.config_path(one.rig.roots),
            weight_server.render_share_config(one.rig.roots, one.rig.share),
        )
        yield "share.service", weight_server.render_share_unit(one.rig.roots, one.rig.share)


def _kind(path: str) -> str:
    """Files of one kind differ from host to host and from instance to instance."""
    folder, _, file = path.rpartition("/")
    if file.startswith("rigwright_"):
        return f"{folder}/{file.partition('-')[0]}.{file.rpartition('.')[2]}"
    return f"{folder}/" if folder not in ("", "gateway") else path


def checks() -> str:
    """The output of `check --json` for an empty host."""
    with TemporaryDirectory() as made:
        folder = Path(made).resolve()
        words = runner.pytest_arguments(str(folder / "everything.py"), "--json")
        environment = os.environ | {"FOLDER": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "80"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.unit.golden_checks", *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != STATUS["not as declared"] or not done.stdout:
        raise RuntimeError(done.stdout + done.stderr)
    texts = Texts()
    report = json.loads(done.stdout.replace(str(folder), "FOLDER"))
    (found,) = report["hosts"]
    verdicts = found.pop("checks")
    report |= {"as_of": "TIME", "took_s": 0.0}
    head = texts.section("check --json", f"{json.dumps(report, indent=2)}\n")
    for one in verdicts:
        one |= {"took_s": 0.0} | dict.fromkeys(("title", "severity", "why"), "")
    return head + texts.section("check --json: hosts.checks", _rows(*map(json.dumps, verdicts)))


def _rows(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


def render() -> dict[str, str]:
    """File in data/golden -> its text."""
    texts = Texts()
    return {
        "checks.txt": checks(),
        **{f"{name}.txt": inventory(name, texts) for name in INVENTORIES},
    }


def main() -> None:
    """Write what is stale, and say which files."""
    for name, text in render().items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"{path.relative_to(ROOT)} written anew\n")


if __name__ == "__main__":
    main()
