"""The CUDA toolkit that was brought."""

import re
import shlex

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Rig
from rigwright.host.facts import HostFacts
from rigwright.nvidia.cuda.compilers import toolkit_refusals
from rigwright.nvidia.cuda.toolkit import toolkit


@check(
    "K01",
    "the CUDA toolkit is the locked one, unchanged",
    severity="critical",
    why="engines load its libraries at every start, and the next build is made with its compiler",
)
def test_files_are_unchanged(host: Host, rig: Rig, facts: HostFacts) -> None:
    wanted = toolkit(rig, facts)
    if wanted is None or not wanted.folder:
        pytest.skip("no instance uses a card" if wanted is None else "the operator's own is used")
    found = host.run("cd %s && sha256sum --quiet --check %s 2>&1", wanted.root, wanted.marker)
    again = f"remove {wanted.folder} and {DEPLOY}"
    expect(" ".join(found.stdout.split()) or "no word", f"every file of {wanted.marker}", again, holds=found.rc == 0)
    expect(host.run("readlink %s/lib64", wanted.root).stdout.strip(), "lib", again)


@check(
    "K02",
    "the CUDA toolkit compiles right, and for the rig's cards",
    severity="critical",
    why="nvcc of 13.2.0 and 13.2.1 miscompiles the unpacking of low-bit quants: the model answers noise",
)
def test_compiler(host: Host, rig: Rig, facts: HostFacts) -> None:
    wanted = toolkit(rig, facts)
    if wanted is None:
        pytest.skip("no instance uses a card")
    said = host.run(f"timeout 20 {shlex.quote(f'{wanted.root}/bin/nvcc')} --version").stdout
    version = re.search(r", V([0-9.]+)", said)
    step = f"remove {wanted.folder} and {DEPLOY}" if wanted.folder else f"install a toolkit at {wanted.root}"
    expect(
        version[1] if version else "no answer", f"{wanted.root}/bin/nvcc to say its version", step, holds=bool(version)
    )
    against = toolkit_refusals(rig, version[1] if version else "")
    expect(
        "; ".join(against),
        "a compiler that nothing speaks against",
        "then remove the engines and deploy again",
        holds=not against,
    )
