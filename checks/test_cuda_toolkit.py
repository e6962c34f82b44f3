"""The CUDA toolkit that was brought."""

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.cuda_toolkit import toolkit
from rigwright.facts import HostFacts
from rigwright.rig import Rig


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
    found = host.run(f"cd {wanted.root} && sha256sum --quiet --check {wanted.marker} 2>&1")
    again = f"remove {wanted.folder} and {DEPLOY}"
    expect(" ".join(found.stdout.split()) or "no word", f"every file of {wanted.marker}", again, holds=found.rc == 0)
    expect(host.run(f"readlink {wanted.root}/lib64").stdout.strip(), "lib", again)
