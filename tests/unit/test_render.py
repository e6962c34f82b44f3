"""Templates: a missing value is an error, and every script that comes out is one a shell can read."""

import os
import shlex
import shutil
import sys
from pathlib import Path

import jinja2
import pytest

from rigwright.project_root import ROOT
from rigwright.render import render
from tests.unit import short_programs
from tests.unit.rendered_scripts import engine_build_script
from tests.unit.samples import sample_probe_values
from tests.unit.script_table import SCRIPTS

# beside this Python, or anywhere on the PATH
SHELLCHECK = shutil.which("shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_shell_can_read_the_script(name: str) -> None:
    done = short_programs.run_program(["sh", "-n"], input=SCRIPTS[name]())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(SHELLCHECK is None, reason="no shellcheck here")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_finds_nothing_in_the_script(name: str) -> None:
    # a file of the host's, and a loop over a list that happens to have one word
    command = [str(SHELLCHECK), "--shell=sh", "--severity=warning", "--exclude=SC1091,SC2043", "-"]
    done = short_programs.run_program(command, input=SCRIPTS[name]())
    assert done.stdout == ""


def test_every_script_is_among_those_that_are_read_here() -> None:
    rendered = "\n".join(script() for script in SCRIPTS.values())
    for template in (ROOT / "templates").rglob("*.sh.j2"):
        # the fixed text of a template, with any values
        fixed = [line for line in template.read_text().splitlines() if line and not set("{}") & set(line)]
        missing = [line for line in fixed if line not in rendered]
        assert not missing, f"{template}: add it to SCRIPTS"


@pytest.mark.parametrize("template", ["tools/install.sh.j2", "serving/instance.service.j2", "weights/fetch.sh.j2"])
def test_a_value_that_is_not_given_is_an_error(template: str) -> None:
    with pytest.raises(jinja2.UndefinedError):
        render(template)


def test_a_misspelt_attribute_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("weights/fetch.sh.j2", artefact=object())


def test_a_value_in_a_command_is_one_word_whatever_it_holds() -> None:
    nasty = "/x/$(touch /tmp/no)'\"; `id` \\ *\n# y"
    script = render("probe/probe.sh.j2", **sample_probe_values(cuda_root=nasty, users=[nasty]))
    assert f"nvcc={shlex.quote(nasty)}/bin/nvcc" in script
    assert f"printf '%s\\n' {shlex.quote(nasty)} $made" in script


def test_options_reach_cmake_one_a_line_and_quoted() -> None:
    script = SCRIPTS["compilation for cards"]()
    assert "  '-DCMAKE_CUDA_ARCHITECTURES=86-real;120a-real' \\\n" in script
    assert "  -DEMPTY= \\\n" in script
    assert "-DGGML_CUDA" not in SCRIPTS["compilation"]()


def test_a_build_takes_the_source_that_was_fetched_by_its_hash() -> None:
    script = engine_build_script()
    assert f"cp /srv/models/_packages/{'a' * 16}/engine-1.0.tar.gz" in script
    assert f'echo {"a" * 64}"  $archive" | sha256sum --check' in script
