"""A plugin that starts vLLM: its program in the place of vLLM's, its options left to it, its modes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rigwright.engines import kind_of
from rigwright.engines.vllm import plugin_launch
from rigwright.engines.vllm.command import DOOR, PROGRAM
from rigwright.model.instance import Instance
from rigwright.model.roots import Roots
from rigwright.plugins.plugin import Plugin, PluginKeys
from tests.sample_plugins import COMMANDS, MODULE, plugin_wheel
from tests.unit.plugin_samples import LAUNCHING, plugin_row
from tests.unit.test_vllm import service
from tests.unit.vllm_samples import checkpoint_parts, vllm_instance


def started(mode: str | None = "auto", keys: dict[str, Any] | None = None, **changes: Any) -> Instance:
    """An instance of vLLM that a plugin starts."""
    plugin = Plugin("louder", PluginKeys(**(LAUNCHING | (keys or {}))), plugin_row())
    return replace(vllm_instance(**changes, **({"mode": mode} if mode else {})), plugins=(plugin,))


def launch_problems(instance: Instance) -> list[str]:
    return kind_of(instance).refusals(instance, Roots(), Path(), frozenset(("8.6",)))


def test_its_launcher_is_started_with_the_words_of_vllm() -> None:
    plain, plugged = service(vllm_instance()), service(started())
    assert plugged.command[:2] == plain.command[:2]
    assert plugged.command[2] == plain.command[2].replace(PROGRAM, plugin_launch.PROGRAM)
    assert plugged.command[3:6] == (plain.command[3], DOOR, "louder-serve")
    assert [word for word in plugged.command[6:] if word not in plain.command] == [
        '--additional-config={"louder": true}'
    ]
    assert plugged.programs == {**plain.programs, plugin_launch.PROGRAM: plugin_launch.LAUNCHER}


def test_one_without_a_launcher_starts_nothing() -> None:
    without = started(None, {"launcher": None, "owned_flags": {}, "modes": {}})
    assert service(without) == service(vllm_instance())


def test_a_mode_is_its_options_and_variables_over_which_the_variant_has_a_say() -> None:
    fast = service(started("fast"))
    assert '--additional-config={"louder": "fast"}' in fast.command
    assert fast.private["LOUDER_MORE"] == "1"
    own = started("fast", flags={"additional-config": {"louder": 2}}, environment={"LOUDER_MORE": "2"})
    assert '--additional-config={"louder": 2}' in service(own).command
    assert service(own).private["LOUDER_MORE"] == "2"
    assert launch_problems(own) == []


def test_options_of_a_mode_need_the_inventorys_consent_as_those_of_a_variant() -> None:
    fast = started("fast")
    assert list(kind_of(fast).forbidden_keys(fast)) == ["environment.LOUDER_MORE"]
    loading = started("auto", {"modes": {"auto": {"flags": {"worker-cls": "x"}, "environment": {"LD_PRELOAD": "x"}}}})
    assert set(kind_of(loading).forbidden_keys(loading)) == {"flags.worker-cls", "environment.LD_PRELOAD"}


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        (
            started(speculative_config={"method": "mtp", "num_speculative_tokens": 3}),
            "speculative_config is not allowed in a variant: plugin louder sets it: it guesses by itself",
        ),
        (
            started(gpu_memory_utilization=0.9),
            "gpu_memory_utilization is not allowed in a variant: plugin louder sets it",
        ),
        (started(parts=checkpoint_parts(), flags={"speculative-config": {}}), "flags.speculative-config"),
        (
            started(keys={"owned_flags": {"compilation-config": "graphs"}}, compilation_config={"level": 3}),
            "compilation_config is not allowed in a variant: plugin louder sets it: graphs",
        ),
        (
            started(keys={"owned_flags": {"enable-prefix-caching": "it"}}, flags={"no-enable-prefix-caching": True}),
            "flags.no-enable-prefix-caching is not allowed in a variant: plugin louder sets it: it",
        ),
        (
            started(keys={"owned_flags": {"speculative-confg": "x"}}),
            "plugins.louder.owned_flags.speculative-confg is not an option of vLLM 0.21.0; "
            'did you mean "speculative-config"?',
        ),
        (started(None), "mode is missing: plugin louder has auto, fast"),
        (started("fsat"), 'mode: plugin louder has no "fsat"; did you mean "fast"?'),
        (vllm_instance(mode="auto"), "mode auto: no plugin of vllm launches it, and only plugins have modes"),
    ],
)
def test_keys_that_rigwright_decides_are_refused_with_the_reason(instance: Instance, said: str) -> None:
    assert any(line.startswith(said) for line in launch_problems(instance)), launch_problems(instance)


def test_a_model_that_guesses_for_another_is_no_variants_either() -> None:
    drafting = started(
        parts=checkpoint_parts(), speculative_config={"method": "draft_model", "num_speculative_tokens": 3}
    )
    assert any("plugin louder sets it" in line for line in launch_problems(drafting))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"launcher": None}, "given a launcher: owned_flags and modes need one"),
        ({"launcher": "vllm"}, "a launcher that is one of its commands, not vllm"),
        ({"owned_flags": {"--speculative-config": "x"}}, "a long option's name without its dashes"),
        ({"modes": {"auto": {"flags": {"x": "a\nb"}}}}, "text on one line"),
        ({"modes": {"auto": {"command": "sh"}}}, "Extra inputs|extra"),
    ],
)
def test_a_description_that_is_invalid_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PluginKeys(**(LAUNCHING | keys))


def test_the_plan_says_what_starts_it() -> None:
    one = started()
    assert kind_of(one).notes(one) == ["is started by louder-serve of plugin louder 1.0 in mode auto"]


SERVES = """
import importlib, os, sys

AGAIN = "import os, sys; sys.path.append(os.environ['SITE']); import louder_plugin; louder_plugin.main()"

def main():
    place, name = sys.argv[sys.argv.index("--middleware") + 1].rsplit(".", 1)
    door = getattr(importlib.import_module(place), name)
    words = sys.argv[1:]
    if "again" in words:
        words.remove("again")
        os.execv(sys.executable, [sys.executable, "-c", AGAIN, *words])
    print(words, os.environ["RW_KEY_FILE"], door.__name__)
"""


def started_by(folder: Path, *words: str, launcher: str = COMMANDS[0]) -> subprocess.CompletedProcess[str]:
    """Run what starts a plugin's launcher, which is in the place of all that a Python has installed."""
    site = folder / "site"
    content = folder / "louder.whl"
    content.write_bytes(plugin_wheel(files={f"{MODULE}/__init__.py": SERVES}))
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(content), str(site)], check=True)
    programs = folder / "programs"
    programs.mkdir()
    (programs / PROGRAM).write_text(Path(plugin_launch.__file__).with_name("launcher.py").read_text())
    (programs / plugin_launch.PROGRAM).write_text(plugin_launch.LAUNCHER)
    environment = {**os.environ, "PYTHONPATH": str(site), "SITE": str(site)}
    program = "import runpy, sys; sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", program, str(programs / plugin_launch.PROGRAM), "/run/key", DOOR, launcher, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


@pytest.mark.parametrize("more", [(), ("again",)], ids=["in its own process", "in another Python"])
def test_it_becomes_the_launcher_which_finds_the_door(tmp_path: Path, more: tuple[str, ...]) -> None:
    done = started_by(tmp_path, "/srv/model", "--uds=/run/x", *more)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{['/srv/model', '--uds=/run/x', '--middleware', DOOR]} /run/key Door\n"


def test_an_unknown_entry_point_ends_it(tmp_path: Path) -> None:
    done = started_by(tmp_path, launcher="other-serve")
    assert (done.returncode, done.stderr) == (1, "0 distributions have an entry point other-serve, expected 1\n")
