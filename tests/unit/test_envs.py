"""Environments: the declaration, the result on a host, and the users that may enter it."""

import json
import subprocess
from pathlib import Path

import pytest

from rigwright.envs import gc
from rigwright.envs.environment import Environment, environment_command, render_activation, render_install_plan
from rigwright.model.instance import EnvSpec
from rigwright.model.rig import Rig
from rigwright.nvidia.cuda_toolkit import plan_toolkit
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import describe_other_cards, find_refusals, find_warnings
from rigwright.render import render
from rigwright.supply.lock import Artefact, render_lock
from tests.unit.env_samples import conda_row, declared_env, env_installation
from tests.unit.samples import GIB, NOW, OperatorFolder, sample_card, sample_facts, sample_rig, sample_wheel

GIB_OF_BYTES = 1 << 30


def compiling() -> tuple[Rig, Environment]:
    """One on a rig with a card, with the toolkit for it."""
    env = declared_env(cuda=True)
    nvcc = sample_wheel("nvidia-cuda-nvcc", version="13.0.88", group="cuda")
    with_card = sample_rig(cards=(sample_card("8.6"),), envs=(env,), cuda_root=None, cuda=(nvcc,))
    return with_card, env_installation(with_card, env)


def test_its_folder_is_named_by_its_distribution_and_all_that_it_is_made_of() -> None:
    first = env_installation()
    assert first.folder.startswith("env-2.0-")
    assert env_installation().digest == first.digest
    assert env_installation(env=declared_env(sample_wheel("more", group="pk", sha256="e" * 64))).digest != first.digest
    moved = sample_wheel("demo", version="2.0", group="pk", sources=["store:demo.whl"])
    elsewhere = EnvSpec("env", declared_env().keys, (conda_row(),), (moved,))
    assert env_installation(env=elsewhere).digest == first.digest


def test_the_toolkit_is_another_input() -> None:
    with_card, one = compiling()
    assert one.toolkit == plan_toolkit(
        with_card.roots, with_card.cards, with_card.instances, with_card.envs, with_card.toolkit, sample_facts()
    )
    assert one.digest != env_installation().digest


def test_it_is_installed_beside_engines_and_kept_as_they_are() -> None:
    box = sample_rig(envs=(declared_env(),))
    found = build_target_state(box, sample_facts())
    folder = box.roots.installation_path(found.installations["env"].folder)
    assert found.generation.links["engines/env"] == folder
    assert folder in found.generation.files["references"].splitlines()


def test_its_builder_reads_place_and_kind_of_each_package() -> None:
    box_rig = sample_rig()
    read = json.loads(render_install_plan(box_rig.roots, box_rig.requests, env_installation(), "/opt/x/engines/env"))
    assert read["prefix"] == "/opt/x/engines/env/env"
    assert read["conda"] == [{"path": f"/srv/models/_packages/{'c' * 16}/python-3.10.20-0_a.conda", "sha256": "c" * 64}]
    (one,) = read["wheels"]
    assert (one["name"], one["version"], one["path"]) == (
        "demo",
        "2.0",
        f"/srv/models/_packages/{'b' * 16}/demo-1.0-py3-none-any.whl",
    )


def test_packages_stay_until_all_that_needs_them_is_whole() -> None:
    whole = env_installation()
    other = env_installation(
        env=EnvSpec("other", declared_env().keys, (conda_row(),), (sample_wheel("more", group="pk"),))
    )
    there = {f"/srv/models/{one.package_path}" for one in whole.artefacts}
    python, demo = whole.artefacts
    box_rig = sample_rig()
    assert gc.find_leftovers(box_rig.roots, box_rig.share, [whole, other], {whole.folder, other.folder}, there) == [
        python,
        demo,
    ]
    assert gc.find_leftovers(box_rig.roots, box_rig.share, [whole, other], {whole.folder}, there) == [demo]


def _shell(script: str) -> list[str]:
    done = subprocess.run(
        ["sh", "-euc", script], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    )
    return done.stdout.splitlines()


def test_activating_and_deactivating_leaves_nothing(tmp_path: Path) -> None:
    _, one = compiling()
    root = one.toolkit.root if one.toolkit else ""
    for name, content in render_activation(one, "/opt/x").items():
        path = tmp_path / "env" / name
        path.parent.mkdir(parents=True)
        path.write_text(content)
    activate = tmp_path / "activate"
    activate.write_text(render("envs/activate.j2", folder=str(tmp_path), prefix=str(tmp_path / "env")))
    said = _shell(
        f". {activate}; echo $CONDA_PREFIX; echo $CUDA_HOME; echo $PATH; "
        f". {tmp_path}/env/etc/conda/deactivate.d/rigwright.sh; echo ${{CUDA_HOME-none}}; echo $PATH"
    )
    assert said == [
        f"{tmp_path}/env",
        root,
        f"{root}/bin:{tmp_path}/env/bin:/usr/bin:/bin",
        "none",
        f"{tmp_path}/env/bin:/usr/bin:/bin",
    ]


def test_without_a_card_it_has_nothing_of_a_toolkit() -> None:
    assert render_activation(env_installation(sample_rig(), declared_env(cuda=True)), "/opt/x") == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"envs": ["demo-env"]}, 'envs[0]: there is no environment "demo-env"; did you mean "demo"?'),
        ({"envs": ["demo", "demo"]}, "envs[1]: demo is listed twice"),
        ({"envs": ["plain"]}, "envs[0]: plain is also an engine's name: both would be installed in one place"),
    ],
)
def test_an_unavailable_version_is_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    box = OperatorFolder(tmp_path)
    for name in ("demo", "plain"):
        box.write(
            f"catalog/{name}.toml",
            f'[envs.{name}]\npython = "py"\npackages = "pk"\ndistribution = "demo"\nimports = ["demo"]\n',
        )
    assert any(said in line for line in box.refusal_lines(**changes)), box.refusal_lines(**changes)


def test_room_for_packages_and_for_what_they_become_is_asked_for() -> None:
    big = declared_env(sample_wheel("big", group="pk", size=4 * GIB_OF_BYTES, sha256="d" * 64))
    box = sample_rig(envs=(big,))
    free = {"/srv/models": 4 * GIB, "/opt/rigwright": 9 * GIB, "/var/lib/rigwright": 50 * GIB, "/etc/rigwright": GIB}
    found = find_refusals(build_target_state(box, sample_facts(disk_free_kib=free)), NOW)
    assert [line.partition(" has ")[0] for line in found] == ["/opt/rigwright", "/srv/models"]
    there = {f"/srv/models/{big.packages[1].package_path}": 4 * GIB_OF_BYTES}
    found = find_refusals(build_target_state(box, sample_facts(disk_free_kib=free, weight_bytes=there)), NOW)
    assert [line.partition(" has ")[0] for line in found] == ["/opt/rigwright"]


def test_memory_that_an_engine_takes_is_warned_of() -> None:
    small = sample_facts(memory_kib=3 * GIB)
    assert [line.partition(" ")[0] for line in find_warnings(sample_rig(envs=(declared_env(),)), small)] == ["3.0"]
    assert (
        find_warnings(sample_rig(), small)
        == find_warnings(sample_rig(envs=(declared_env(),)), sample_facts(memory_kib=8 * GIB))
        == []
    )


def refusal_lines(folder: Path, python: Artefact, wheel: str, more: str = "", **keys: object) -> list[str]:
    """The refusal of an environment with this Python and this one wheel."""
    box = OperatorFolder(folder)
    locked = sample_wheel(wheel, version="2.0", group="pk", python="3.10.20", as_of="2026-06-10", **keys)
    rows = [python, locked, sample_wheel("uv", group="installers")]
    box.write("locks/env.lock.toml", render_lock(rows, "a test").replace("# Written by", "# By"))
    box.write(
        "catalog/env.toml",
        '[envs.env]\npython = "py"\npackages = "pk"\ndistribution = "demo"\nimports = ["demo"]\n'
        f'[inputs.pk]\nkind = "wheel"\npython = "3.10.20"\nas_of = "2026-06-10"\nrequirements = ["{wheel}"]\n{more}',
    )
    return box.refusal_lines(envs=["env"])


def test_a_card_without_code_is_refused_with_the_file(tmp_path: Path) -> None:
    code = ["lib/main.so sm_80 compute_80", "lib/other.so sm_90a"]
    lines = refusal_lines(tmp_path, conda_row(), "demo", 'for_other_cards = ["lib/other.so"]\n', machine_code=code)
    (line,) = [one for one in lines if "has code for" in one]
    assert "box.envs[0]: env: lib/main.so of demo 2.0 has code for sm_80, compute_80, but none for" in line
    assert "7.5" in line


def test_a_shell_runs_as_user_nobody_and_the_words_stay_apart() -> None:
    words = environment_command(sample_rig().roots, "/opt/x", ("echo", "a b", "$HOME"), "x.service", terminal=False)
    assert {"--property=DynamicUser=yes", "--property=NoNewPrivileges=yes", "--pipe"} <= set(words)
    assert words[-5:] == ('. "$$0" && exec "$$@"', "/opt/x/activate", "echo", "a b", "$$HOME")
    assert "--pty" in environment_command(sample_rig().roots, "/opt/x", (), "x.service", terminal=True)


def test_an_environment_without_its_python_or_what_names_its_version_is_refused(tmp_path: Path) -> None:
    lines = refusal_lines(tmp_path, conda_row(name="libffi"), "other")
    found = [one.partition("box.envs[0]: ")[2] for one in lines]
    assert "env: py does not include python: add it to requirements" in found
    assert "env: pk has no distribution demo, whose version is the environment's; allowed: other" in found


def test_files_that_no_card_of_the_rig_can_run_are_named_where_they_are_for_others() -> None:
    packages = tuple(
        sample_wheel(name, version="1.0", group="pk", machine_code=[f"{name}/{part}.so sm_90a" for part in "abcd"])
        for name in ("demo",)
    )
    env = EnvSpec("env", declared_env().keys, (conda_row(),), packages, ("demo/*",))
    box_rig = sample_rig(cards=(sample_card("8.6"), sample_card("8.6")), envs=(env,))
    (line,) = describe_other_cards(box_rig.cards, box_rig.envs)
    assert line == "env: no code for compute capability 8.6, so not used: demo/a.so, demo/b.so, demo/c.so and 1 more"
    box_rig = sample_rig(cards=(sample_card("9.0"),), envs=(env,))
    assert describe_other_cards(box_rig.cards, box_rig.envs) == []
    box_rig = sample_rig(envs=(env,))
    assert describe_other_cards(box_rig.cards, box_rig.envs) == []
