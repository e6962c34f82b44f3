"""Plugins as they are declared, and what an environment with one is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.envs.environment import render_install_plan
from rigwright.envs.installed_packages import locked_packages
from rigwright.model.instance import EnvSpec
from rigwright.model.rig import locked_artefacts
from rigwright.plugins.plugin import Plugin, PluginKeys
from rigwright.supply.lock import render_lock
from rigwright.supply.lock_inputs import Input
from tests.sample_plugins import COMMANDS, MODULE, NAME
from tests.unit.env_samples import conda_row, declared_env, env_installation
from tests.unit.plugin_samples import KEYS, plugin_row
from tests.unit.samples import OperatorFolder, sample_rig, sample_wheel


def env_with_plugin(version: str = "1.0", **changes: object) -> EnvSpec:
    return replace(declared_env(), plugins=(Plugin("louder", PluginKeys(**KEYS), plugin_row(version, **changes)),))


def test_an_environment_with_one_is_another_and_so_is_one_of_another_version() -> None:
    older, newer = (
        env_installation(env=env_with_plugin()),
        env_installation(env=env_with_plugin("1.1", sha256="f" * 64)),
    )
    assert len({env_installation().folder, older.folder, newer.folder}) == 3
    assert env_installation(env=env_with_plugin()).digest == older.digest
    assert env_installation(env=env_with_plugin(sources=["elsewhere:louder.zip"])).digest == older.digest


def test_it_is_a_distribution_more_and_its_modules_are_tried() -> None:
    one = env_installation(env=env_with_plugin())
    assert locked_packages(one) - locked_packages(env_installation()) == {f"{NAME}==1.0"}
    assert one.imports == ("demo", MODULE)
    assert plugin_row() in one.artefacts
    assert plugin_row() in locked_artefacts(sample_rig(envs=(env_with_plugin(),)))


def test_the_plan_says_which() -> None:
    assert env_installation(env=env_with_plugin()).what.endswith(
        f"with the plugin louder 1.0 (louder-v1.0.zip, SHA-256 {'e' * 12})"
    )


def test_its_unpacker_reads_its_place_and_its_allowed_files() -> None:
    box_rig = sample_rig()
    (one,) = json.loads(
        render_install_plan(
            box_rig.roots, box_rig.requests, env_installation(env=env_with_plugin()), "/opt/x/engines/env"
        )
    )["plugins"]
    assert one == {
        "name": NAME,
        "version": "1.0",
        "imports": [MODULE],
        "commands": [*COMMANDS],
        "path": f"/srv/models/_packages/{'e' * 16}/louder-v1.0.zip",
    }


def toml(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def plugin_problems(
    folder: Path, plugins: list[str], code: tuple[str, ...] | None = None, other: str = "", **changes: object
) -> list[str]:
    """The messages about an environment of a rig that names plugins, of which there is one.

    Args:
        folder: Of its inventory.
        plugins: Those names.
        code: The targets of the plugin's machine code, as rows have them.
        other: Which of its files are for other cards alone.
        changes: Keys of the plugin.
    """
    box = OperatorFolder(folder)
    python, package = conda_row(), sample_wheel("demo", version="2.0", group="pk")
    rows = [
        python,
        package,
        plugin_row().model_copy(update={"machine_code": code}),
        sample_wheel("uv", group="installers"),
    ]
    box.write("locks/env.lock.toml", render_lock(rows, "a test").replace("# Written by", "# By"))
    env = {"python": "py", "packages": "pk", "distribution": "demo", "imports": ["demo"], "plugins": plugins}
    tables = f"[envs.env]\n{toml(env)}[plugins.louder]\n{toml(KEYS | changes)}[plugins.again]\n{toml(KEYS)}"
    own = {"kind": "plugin", "version": "1.0", "sources": ["office:louder-v1.0.zip"], "for_other_cards": [other]}
    box.write("catalog/env.toml", tables + (f"[inputs.louder]\n{toml(own)}" if other else ""))
    return [one.partition("box.envs[0]: env: ")[2] or one for one in box.refusal_lines(envs=["env"])]


@pytest.mark.parametrize(
    ("plugins", "changes", "said"),
    [
        (["loader"], {}, 'there is no plugin "loader"; did you mean "louder"?'),
        (["louder", "louder"], {}, "plugin louder is listed twice"),
        (["louder"], {"input": "luder"}, 'plugin louder: there is no locked plugin "luder"; did you mean "louder"?'),
        (["louder"], {"target_distribution": "other"}, "plugin louder is of other, which env does not have"),
        (["louder"], {"versions": ["2.1"]}, "plugin louder is for demo 2.1, but env has 2.0"),
        (["louder"], {"distribution": "Demo"}, "plugin louder is the distribution Demo, which "),
        (["louder", "again"], {}, f"plugins louder and again both install the distribution {NAME}"),
        (["louder", "again"], {"distribution": "x"}, "plugins louder and again both install the command louder-serve"),
        (["louder"], {"commands": ["../x"]}, "plugins.louder.commands[0]: '../x' is refused: must be a program name"),
        (["louder"], {"imports": []}, "plugins.louder.imports"),
        (["louder"], {"launch": "sh"}, "plugins.louder.launch: unknown key"),
    ],
)
def test_problems_of_one_are_reported_before_a_host_is_touched(
    tmp_path: Path, plugins: list[str], changes: dict[str, object], said: str
) -> None:
    found = plugin_problems(tmp_path, plugins, **changes)
    assert any(said in line for line in found), found


def test_one_that_fits_is_not_refused(tmp_path: Path) -> None:
    assert not [line for line in plugin_problems(tmp_path, ["louder"]) if "plugin" in line]


def test_one_without_code_for_the_rigs_card_is_refused(tmp_path: Path) -> None:
    code = ("louder_plugin/a.so sm_80 compute_80", "louder_plugin/b.so sm_75 compute_75")
    (line,) = [one for one in plugin_problems(tmp_path / "one", ["louder"], code) if "has code for" in one]
    said = "louder_plugin/a.so of louder 1.0 has code for sm_80, compute_80, but none for compute capability 7.5"
    assert line == said
    found = plugin_problems(tmp_path / "two", ["louder"], code, "*/a.so")
    assert not [one for one in found if "has code for" in one or "for_other_cards" in one]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sources": ["store:louder.tar.gz"]}, "a .whl or .zip file, not louder.tar.gz"),
        ({"sources": ["index:louder"]}, "the index has sources and wheels, no plugin"),
        ({"version": None}, "a plugin: version and sources"),
    ],
)
def test_an_input_that_is_no_plugins_is_refused(values: dict[str, Any], said: str) -> None:
    own = {"kind": "plugin", "version": "1.0", "sources": ["store:louder.zip"]}
    Input.model_validate(own)
    with pytest.raises(ValueError, match=said):
        Input.model_validate({key: value for key, value in (own | values).items() if value is not None})
