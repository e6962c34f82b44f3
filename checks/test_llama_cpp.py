"""Compiled engines."""

import json

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Rig
from rigwright.engines.llama_cpp.build import Build, cuda_architectures


@check(
    "L01",
    "the engine was built from the locked source with the declared options",
    severity="critical",
    why="another source or option is another program",
)
def test_build_record(host: Host, rig: Rig, builds: dict[str, Build], engine_name: str) -> None:
    build = builds[engine_name]
    record = host.run("cat %s/engines/%s/build.json", rig.roots.software, build.folder)
    inputs = json.loads(record.stdout)["inputs"] if record.rc == 0 else {"source": {"sha256": "nothing built"}}
    expect(inputs["source"]["sha256"], rig.sources[engine_name].sha256, again(rig, build))
    expect(inputs["options"], build.options, again(rig, build))


@check(
    "L02",
    "its files are the ones that were installed",
    severity="critical",
    why="a changed binary is either damage or somebody else's",
)
def test_files_are_unchanged(host: Host, rig: Rig, builds: dict[str, Build], engine_name: str) -> None:
    build = builds[engine_name]
    result = host.run("cd %s/engines/%s && sha256sum --check --quiet files.sha256", rig.roots.software, build.folder)
    said = "; ".join((result.stdout + result.stderr).splitlines()[:3])
    expect(said, "", again(rig, build), holds=result.rc == 0)


@check("L03", "it starts and says its commit", severity="critical", why="a missing library shows here first")
def test_it_starts(host: Host, rig: Rig, builds: dict[str, Build], engine_name: str) -> None:
    result = host.run("%s/engines/%s/bin/llama-server --version", rig.roots.software, builds[engine_name].folder)
    said = result.stdout + result.stderr
    commit = rig.engines[engine_name].commit[:7]
    expect(
        said.strip()[-200:],
        f"a version with commit {commit}",
        again(rig, builds[engine_name]),
        holds=result.rc == 0 and commit in said,
    )


@check(
    "L05",
    "it holds machine code for exactly the rig's cards",
    severity="critical",
    why="a card without code of its own fails at the first request, or compiles for minutes at every start",
)
def test_machine_code(host: Host, rig: Rig, builds: dict[str, Build], engine_name: str) -> None:
    wanted = {f"sm_{a.removesuffix('-real')}" for a in cuda_architectures(rig, engine_name)}
    if not wanted:
        pytest.skip("no instance of this engine uses a card")
    library = f"{rig.roots.software}/engines/{builds[engine_name].folder}/bin/libggml-cuda.so"
    root = builds[engine_name].options["CUDAToolkit_ROOT"]
    listed = host.check_output(f"{root}/bin/cuobjdump --list-elf {library} | grep -o 'sm_[0-9]*[a-z]*' | sort -u")
    expect(sorted(listed.split()), sorted(wanted), again(rig, builds[engine_name]))


def again(rig: Rig, build: Build) -> str:
    """A folder with its marker is never built again by itself."""
    return f"remove {rig.roots.software}/engines/{build.folder} and {DEPLOY}"
