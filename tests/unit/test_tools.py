"""The hosts' Python tools: a folder that is another one when the lock or the distribution is."""

import re
from itertools import permutations

import pytest

from rigwright import fetch_job_spec
from rigwright.model.roots import Roots
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock
from tests.unit.samples import sample_facts, sample_instance, sample_rig, sample_wheel


def test_another_release_or_distribution_has_a_folder_of_its_own() -> None:
    hosts = [
        sample_facts(),
        sample_facts(os_version="13"),
        sample_facts(os_id="ubuntu", os_version="24.04"),
        sample_facts(os_id="ubuntu"),
    ]
    assert len(
        {fetch_job_spec.host_tools((box_rig := sample_rig()).roots, box_rig.tools, host).folder for host in hosts}
    ) == len(hosts)


def test_nothing_else_of_a_host_or_rig_is_an_input() -> None:
    first_rig = sample_rig()
    box_rig = sample_rig(sample_instance(), name="other")
    others = [
        fetch_job_spec.host_tools(
            first_rig.roots, first_rig.tools, sample_facts(kernel="6.12", memory_kib=1, cuda_version="")
        ),
        fetch_job_spec.host_tools(box_rig.roots, box_rig.tools, sample_facts()),
    ]
    box_rig = sample_rig()
    assert {made.folder for made in others} == {
        fetch_job_spec.host_tools(box_rig.roots, box_rig.tools, sample_facts()).folder
    }


@pytest.mark.parametrize(
    "wheels",
    [
        (),
        (sample_wheel(version="1.1"),),
        (sample_wheel(sha256="c" * 64),),
        (sample_wheel(marker="python_version < '3.11'"),),
    ],
    ids=["none", "version", "hash", "marker"],
)
def test_another_lock_has_a_folder_of_its_own(wheels: tuple[Artefact, ...]) -> None:
    first_rig = sample_rig(tools=wheels)
    box_rig = sample_rig()
    assert (
        fetch_job_spec.host_tools(first_rig.roots, first_rig.tools, sample_facts()).folder
        != fetch_job_spec.host_tools(box_rig.roots, box_rig.tools, sample_facts()).folder
    )


def test_the_requirements_are_the_same_text_in_whatever_order_the_wheels_come() -> None:
    marker = "python_full_version < '3.11'"
    rows = [
        sample_wheel("b", version="2", marker=marker, sha256="2" * 64),
        sample_wheel("a", file="a-1.0-cp310-cp310-manylinux_2_17_x86_64.whl", sha256="3" * 64),
        sample_wheel("b", version="2", marker=marker, file="b-2-py3-none-any.whl", sha256="1" * 64),
        sample_wheel("a", sha256="4" * 64),
    ]
    text = "a==1.0 \\\n    --hash=sha256:{3} \\\n    --hash=sha256:{4}\n"
    text += "b==2 ; {marker} \\\n    --hash=sha256:{1} \\\n    --hash=sha256:{2}\n"
    digests = ["", *(str(digit) * 64 for digit in range(1, 5))]
    assert {fetch_job_spec.render_requirements(order) for order in permutations(rows)} == {
        text.format(*digests, marker=marker)
    }


def test_the_marker_lies_in_the_folder_below_the_rigs_software() -> None:
    box_rig = sample_rig(roots=Roots(software="/data/sw"))
    made = fetch_job_spec.host_tools(box_rig.roots, box_rig.tools, sample_facts())
    assert re.fullmatch(r"/data/sw/tools-[0-9a-f]{12}", made.folder)
    assert made.marker.startswith(made.folder + "/")


def test_shipped_tools_are_locked_by_version_and_hash() -> None:
    shipped = (
        fetch_job_spec.render_requirements(Lock.load([ROOT / "locks"]).groups["tools"])
        .replace("\\\n", " ")
        .splitlines()
    )
    assert {line.partition("==")[0] for line in shipped} >= {"scikit-build-core", "packaging"}
    assert [r for r in shipped if not re.match(r"[\w.-]+==[\w.]+\s.*--hash=sha256:[0-9a-f]{64}", r)] == []
