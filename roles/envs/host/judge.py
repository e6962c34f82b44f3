"""Judge an environment before it is used: `python3 -m rigwright_envs.judge PHASE TREE`, as root, beside plan.json.

TREE comes from an untrusted program; nothing of it is run, no byte of it is changed, and no link in it is followed.
PHASE `patches` comes before anything is there: wheels must list what their patches are for. PHASE `conda`
comes when conda packages are all that is there, for none of their code has run yet: it writes down what they list, and
takes the wheels of plugins out of their files.
PHASE `all` comes last: everything becomes root's, and every file must be one that a locked package lists, with the
bytes that it says, or what a patch makes of it; of wheels, the wheel itself is asked. Prints the SHA-256 of each into
files.sha256, and with inode, size and times into `seen`: a reader that finds those as they were need not read it again.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .lists import (
    DIST_INFO,
    LINK,
    META,
    list_conda_files,
    list_distribution_files,
    list_wheel_files,
    normalize_distribution_name,
)
from .plugins import FOLDER, NAMED, extract_plugin_wheels
from .tree import (
    SHOWN,
    EnvironmentRejected,
    FolderTree,
    HashedFile,
    escape_word,
    hash_tree_files,
    make_root_owned,
    read_tree_text,
    walk_folder,
)
from .wheels import find_surplus, find_surplus_conda, parse_requires

COMPILED = re.compile(r"(.*/)?__pycache__/([^/]+)\.cpython-[0-9]+(?:\.opt-[12])?\.pyc")
WRITTEN = re.compile(r"bin/[^/]+|include/.+|lib/python3\.[0-9]+/site-packages/[^/]+\.dist-info/[^/]+")
"""The files that installing a wheel writes and that are not in it as they are: programs, headers, and the record of the
installation."""
BESIDE = ("CACHEDIR.TAG", "conda-meta/history")
"""The files that py-rattler writes next to packages."""


def validate_environment(
    top: Path, plan: Mapping[str, Any], conda: Mapping[str, str], said: Any = None
) -> dict[str, HashedFile]:
    """Path -> what it is, of every file of an environment.

    Args:
        top: The environment, wherever it lies for now.
        plan: The plan that it was made by.
        conda: The lists of conda packages (`list_conda_files`).
        said: Gets the progress, in per cent.

    Raises:
        EnvironmentRejected: with all that is wrong with it.
    """
    tree = walk_folder(top)
    if tree.wrong:
        raise EnvironmentRejected("\n".join(tree.wrong[:SHOWN]))
    distributions = {normalize_distribution_name(one["name"]): one["version"] for one in plan["wheels"]}
    written = dict(list_distribution_files(top, tree, distributions))
    site = next((of[1] for path in sorted(tree.files) if (of := DIST_INFO.fullmatch(path))), "")
    listed: dict[str, set[str]] = {path: {digest} for path, digest in conda.items()}
    wrong = []
    for one in plan["wheels"]:
        for path, digest in list_wheel_files(Path(one["path"]), site):
            if path in conda and conda[path] != digest:
                wrong.append(f"{escape_word(path)} is a conda package's, and {Path(one['path']).name} has another one")
            listed.setdefault(path, set()).add(digest)
    for patch in plan["patches"]:
        for target in patch["targets"]:
            listed[site + target["path"]] = {target["after"]}
        wrong += _find_shadowed_targets(
            patch, (path.removeprefix(site) for path in tree.files if path.startswith(site))
        )
    for name, content in plan["texts"].items():
        listed[name] = {hashlib.sha256(content.encode()).hexdigest()}
    # a distribution writes programs when it is installed, and so the record of that
    listed |= {path: {digest} for path, digest in written.items() if path not in listed and WRITTEN.fullmatch(path)}
    wrong += _find_unlisted_files(tree, listed)
    if wrong:
        raise EnvironmentRejected("\n".join(wrong[:SHOWN]))
    found = hash_tree_files(top, tree.files, said)
    for path, one in sorted(found.items()):
        expected = listed.get(path, {""})
        if not _is_compiled(path, listed) and one.sha256 not in expected and "" not in expected:
            wrong.append(f"{path} has other bytes than its package says")
    if wrong:
        raise EnvironmentRejected("\n".join(wrong[:SHOWN]))
    return found


def validate_patched_wheels(plan: Mapping[str, Any]) -> None:
    """Have every wheel that is patched list what its patches are for.

    Raises:
        EnvironmentRejected: with every file of which one has another.
    """
    wheels = {Path(one["path"]).name: Path(one["path"]) for one in plan["wheels"]}
    wrong = []
    for patch in plan["patches"]:
        listed = dict(list_wheel_files(wheels[patch["wheel"]], ""))
        for target in patch["targets"]:
            found = listed.get(target["path"])
            if found != target["before"]:
                said = f"expected {target['before'] or 'no file'}, found {found or 'no file'}"
                wrong.append(f"patch {patch['name']}: {target['path']} of {escape_word(patch['wheel'])}: {said}")
        wrong += _find_shadowed_targets(patch, listed)
    wrong += _find_files_of_other_wheels(plan["patches"], wheels)
    if wrong:
        raise EnvironmentRejected("\n".join(wrong[:SHOWN]))


def reject_surplus_packages(top: Path, plan: Mapping[str, Any]) -> None:
    """Have every package be needed by what is asked for, by what the packages themselves require.

    Args:
        top: The environment, with conda packages alone.
        plan: The plan that it is made by; `requests` is None of packages that no input of the catalogue asks for.

    Raises:
        EnvironmentRejected: with every one that nothing requires.
    """
    wrong: list[str] = []
    if (asked := plan["requests"]["conda"]) is not None:
        metas = filter(META.fullmatch, walk_folder(top).files)
        wrong += find_surplus_conda(asked, [json.loads(read_tree_text(top, path)) for path in metas])
    if (asked := plan["requests"]["wheels"]) is not None:
        wrong += find_surplus(
            asked,
            {normalize_distribution_name(one["name"]): parse_requires(Path(one["path"])) for one in plan["wheels"]},
        )
    if wrong:
        raise EnvironmentRejected("\n".join(wrong[:SHOWN]))


def _find_files_of_other_wheels(patches: Iterable[Mapping[str, Any]], wheels: Mapping[str, Path]) -> Iterator[str]:
    """Files that patches bring, and that other wheels than their own have."""
    brought = {target["path"]: patch for patch in patches for target in patch["targets"] if not target["before"]}
    for name, path in wheels.items() if brought else ():
        for listed, _ in list_wheel_files(path, ""):
            if (patch := brought.get(listed)) and patch["wheel"] != name:
                yield f"patch {patch['name']}: {listed} is a file of {escape_word(name)}"


def _find_shadowed_targets(patch: Mapping[str, Any], there: Iterable[str]) -> Iterator[str]:
    """The files of a patch that never run, as Python imports another one in their place."""
    paths = tuple(there)
    for path, pattern in patch["shadows"].items():
        for other in filter(re.compile(pattern).fullmatch, paths):
            yield f"patch {patch['name']}: {path} is never imported: {other} takes precedence"


def _find_unlisted_files(tree: FolderTree, listed: Mapping[str, set[str]]) -> Iterator[str]:
    """Surplus and missing files."""
    for path, digests in sorted(listed.items()):
        if path not in (tree.links if LINK in digests else tree.files):
            yield f"{escape_word(path)} is missing"
    for path in sorted(tree.files):
        if path not in listed and not (path in BESIDE or META.fullmatch(path) or _is_compiled(path, listed)):
            yield f"{path} belongs to no package"
    for path in sorted(tree.links):
        if LINK not in listed.get(path, ()):
            yield f"{path} is a link that belongs to no package"


def _is_compiled(path: str, listed: Mapping[str, object]) -> bool:
    """Whether a file is what Python has compiled of one that a package lists."""
    made = COMPILED.fullmatch(path)
    return bool(made and f"{made[1] or ''}{made[2]}.py" in listed)


def main() -> int:
    """Judge the tree that is named; the exit status."""
    phase, top = sys.argv[1], Path(sys.argv[2])
    plan = json.loads(Path("plan.json").read_text())
    kept = Path("conda.json")
    try:
        if phase == "patches":
            validate_patched_wheels(plan)
            return 0
        if phase == "conda":
            conda = list_conda_files(top, plan)
            reject_surplus_packages(top, plan)
            kept.write_text(json.dumps(conda))
            extract_plugin_wheels(plan, conda, Path(FOLDER))
            return 0
        conda = json.loads(kept.read_text())
        plan["wheels"] += json.loads(Path(FOLDER, NAMED).read_text())
        make_root_owned(top)
        found = validate_environment(top, plan, conda, lambda part: print(f"[{part}/100] per cent", flush=True))
    except EnvironmentRejected as error:
        print(f"the environment is not the locked one:\n{error}", flush=True)
        return 1
    rows = sorted(found.items())
    Path("files.sha256").write_text("".join(f"{one.sha256}  env/{path}\n" for path, one in rows))
    Path("seen").write_text("".join(f"{one.row} env/{path}\n" for path, one in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
