"""Which kernel boots next."""

import pytest

from rigwright.nvidia.driver.driver_facts import release_key
from rigwright.nvidia.driver.kernel_facts import KernelFacts, KernelModule


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("6.1.0-9-amd64", "6.1.0-40-amd64"),
        ("6.12.94+deb13-amd64", "6.12.100+deb13-amd64"),
        ("6.12~rc5-amd64", "6.12-amd64"),
        ("6.12-amd64", "6.12.1-amd64"),
        ("6.8.0-117-generic", "6.14.0-29-generic"),
        ("6.18.44-fc-v657-gpu", "7.0.0-34-generic"),
    ],
)
def test_the_kernel_that_boots_next_is_the_newest(older: str, newer: str) -> None:
    assert release_key(older) < release_key(newer)
    kernels = tuple(KernelModule(release, True, "", "", "") for release in (newer, older))
    assert KernelFacts(older, kernels).newest.release == newer
    # one that is not in /boot does not boot
    assert KernelFacts(older, (KernelModule(newer, False, "", "", ""), kernels[1])).newest.release == older
