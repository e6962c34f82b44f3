"""A plugin's doctor is an untrusted program: its output is read line by line, and it runs as an instance's user."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rigwright.engines import kind_of
from rigwright.model.instance import COMPILED
from rigwright.model.rig import account_names
from rigwright.plugins.plugin import PluginKeys, SelftestKeys
from rigwright.plugins.verdict import SHOWN, Refused, plain, verdict
from rigwright.project_root import ROOT
from rigwright.serving.instance_units import build_unit
from rigwright.serving.plugin_selftest import LARGEST, plan_selftests
from rigwright.supply.lock_inputs import Input
from rigwright.toml import tomllib
from tests.unit.plugin_samples import LAUNCHING, SELFTEST, instance_with_selftest, make_examination
from tests.unit.vllm_samples import vllm_environment, vllm_instance, vllm_rig

WELL = """Python 3.10.20: PASS
GDN interface (candidate): SKIP, its import failed
GDN interface (legacy): PASS
Topology: 2 x SM75
AutoSpec = 3
"""


def plan(**changes: object) -> dict[str, Any]:
    lines = {name: one.plan for name, one in SelftestKeys(**SELFTEST).lines.items()}
    return {"doctor": "louder-doctor", "lines": lines, "seconds": 60, "largest": LARGEST} | changes


def parse_verdict(said: str | bytes, status: int = 0, seconds: int = 3) -> dict[str, str]:
    return verdict(plan(), said.encode() if isinstance(said, str) else said, status, seconds)


def test_all_is_well_where_every_line_says_so() -> None:
    assert parse_verdict(WELL) == {"python": "PASS", "gdn": "PASS", "topology": "SM75", "guesses": "3"}


@pytest.mark.parametrize(
    ("said", "status", "seconds", "reason"),
    [
        (WELL.replace("legacy): PASS", "legacy): FAIL"), 0, 3, "gdn: FAIL: GDN interface (legacy): FAIL"),
        (WELL + "GDN interface again: FAILED\n", 0, 3, "gdn: FAIL: GDN interface"),
        (WELL.replace("20: PASS", "20: fine"), 0, 3, "python: neither PASS nor FAIL: Python 3.10.20: fine"),
        (WELL.replace("20: PASS", "20: BYPASSED"), 0, 3, "python: neither PASS nor FAIL"),
        (WELL.replace("Python", "Pythonic"), 0, 3, "it reports nothing for python"),
        (WELL.replace("SM75", "SM86"), 0, 3, "topology: not SM75: Topology: 2 x SM86"),
        (WELL.replace("= 3", "= many"), 0, 3, "guesses: no number: AutoSpec = many"),
        (WELL, 1, 3, "it exited with status 1"),
        (WELL, 0, 60, "it did not finish within 60 seconds"),
        (WELL + "x" * LARGEST, 0, 3, "it prints more than 65,536 bytes"),
        ("", 0, 3, "it reports nothing for python\nit reports nothing for gdn\nit reports nothing for topology"),
        (b"\xff\xfe\x00", 0, 3, "it reports nothing for python"),
    ],
)
def test_unhealthy_parts_are_named(said: str | bytes, status: int, seconds: int, reason: str) -> None:
    with pytest.raises(Refused) as error:
        parse_verdict(said, status, seconds)
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize(
    ("line", "by", "reason"),
    [
        ("2 x SM75", "2 x SM75 FAIL", "topology: FAIL: Topology: 2 x SM75 FAIL"),
        ("2 x SM75", "no SM75 card", "topology: not SM75: Topology: no SM75 card"),
        ("2 x SM75", "SM75: not found", "topology: not SM75: Topology: SM75: not found"),
        ("2 x SM75", "2 x SM750", "topology: not SM75: Topology: 2 x SM750"),
        ("= 3", "= 3 FAIL", "guesses: FAIL: AutoSpec = 3 FAIL"),
        ("20: PASS", "20: FAILURE PASS", "python: FAIL: Python 3.10.20: FAILURE PASS"),
        ("20: PASS", "20: DID NOT PASS", "python: FAIL: Python 3.10.20: DID NOT PASS"),
        ("20: PASS", "20: PASS, and AutoMem didn't pass", "python: FAIL: Python"),
        ("= 3", "= 3\nRESULT: FAIL", "it says FAIL: RESULT: FAIL"),
        ("= 3", "= 3\nCUDA graphs FAILED", "it says FAIL: CUDA graphs FAILED"),
        ("= 3", "= 3\nCUDA graphs FAIL\rCUDA graphs PASS", "it says FAIL: CUDA graphs FAIL"),
        ("Python 3", "\x1bPPython FAIL\x1b\\Python 3", "it says FAIL: Python FAIL"),
        ("Python 3", "Python FAIL\x1b[2K\x1b[1GPython 3", "it says FAIL: Python FAIL"),
        ("Python 3", "\x1b]0;\nFAIL\n\x07Python 3", "it says FAIL: FAIL"),
    ],
)
def test_a_line_of_any_kind_that_fails_is_shown(line: str, by: str, reason: str) -> None:
    with pytest.raises(Refused) as error:
        parse_verdict(WELL.replace(line, by))
    (only,) = str(error.value).splitlines()
    assert only.startswith(reason)


def test_failures_are_reported_in_a_few_lines() -> None:
    with pytest.raises(Refused) as error:
        parse_verdict(WELL + "".join(f"{number}: FAIL\n" for number in range(1000)))
    assert len(str(error.value).splitlines()) == SHOWN


@pytest.mark.parametrize("by", ["2 x SM75, no NVLink", "no NVLink; 2 x SM75", "SM75 (not bridged)"])
def test_a_negation_next_to_the_words_does_not_count(by: str) -> None:
    assert parse_verdict(WELL.replace("2 x SM75", by))["topology"] == "SM75"


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("\x1b[1;32mPython\x1b[0m \x1b[32mPASS\x1b[0m", ["Python PASS"]),
        ("\x1b]0;PASS\x07Python FAIL", ["Python FAIL"]),
        ("\x9b31mPython", ["Python"]),
        ("Python FAIL\rPython PASS", ["Python PASS"]),
        ("one\r\ntwo\n\n", ["one", "two"]),
        ("a\x00b\u202ec", ["a b c"]),
    ],
)
def test_lines_are_as_a_reader_of_a_terminal_sees_them(said: str, seen: list[str]) -> None:
    assert plain(said.encode()) == seen


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": "sh"}, "a selftest whose command is one of its commands, not sh"),
        ({"lines": {"x": {"match": "x", "without_model": False}}}, "at least one that is reported without a model"),
        ({"lines": {}}, "at least one that is reported without a model"),
        ({"lines": {"x": {"match": "x", "kind": "text"}}}, "given contains if, and only if, its kind is text"),
        ({"lines": {"x": {"match": "x", "contains": "y"}}}, "given contains if, and only if, its kind is text"),
        ({"seconds": 0}, "greater than or equal to 1"),
    ],
)
def test_a_description_that_is_invalid_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PluginKeys(**LAUNCHING, selftest=SELFTEST | changes)


def test_one_is_made_for_every_instance_whose_plugin_has_a_doctor() -> None:
    box = vllm_rig(vllm_instance("plain"), instance_with_selftest())
    assert [one.title for one in plan_selftests(box, {"vllm": vllm_environment(box)})] == ["louder-doctor of chat"]
    assert plan_selftests(vllm_rig(vllm_instance()), {"vllm": vllm_environment(vllm_rig(vllm_instance()))}) == []


def test_it_is_made_anew_where_anything_of_it_is_another() -> None:
    one, same = make_examination(instance_with_selftest()), make_examination(instance_with_selftest())
    assert one == same
    others = [
        instance_with_selftest(memory_max="3G"),
        instance_with_selftest(cards=(1,)),
        instance_with_selftest(model_name="other"),
    ]
    assert len({one.unit, *(make_examination(other).unit for other in others)}) == 4
    assert make_examination(instance_with_selftest(), capability="7.5").unit != one.unit
    assert one.test == f"[ -s /var/lib/rigwright/jobs/{one.unit}/verdict ]"


def test_the_plan_says_that_it_is_asked() -> None:
    one = instance_with_selftest()
    assert "is switched to once louder-doctor passes" in kind_of(one).notes(one)


RUNNER = """#!/bin/sh
# systemd-run's place: what it is told is kept, and the doctor is run as it is
printf '%s\\n' "$@" >> "$ASKED"
while [ "$1" != -- ]; do shift; done
shift 2
exec sh "$DOCTOR" "$@"
"""


def run(folder: Path, doctor: str) -> tuple[subprocess.CompletedProcess[str], str, Path]:
    """Run the script of a doctor's examination, where systemd-run is a stand-in; the request, and its folder."""
    one = make_examination(instance_with_selftest())
    jobs = folder / "jobs"
    (jobs / one.unit).mkdir(parents=True)
    (folder / "systemd-run").write_text(RUNNER)
    (folder / "systemd-run").chmod(0o755)
    (folder / "doctor").write_text(doctor)
    given = {"PATH": f"{folder}:{os.environ['PATH']}", "ASKED": str(folder / "asked"), "DOCTOR": str(folder / "doctor")}
    script = one.script.replace("/var/lib/rigwright/jobs", str(jobs))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=given, timeout=60)
    return done, (folder / "asked").read_text(), jobs / one.unit


def verdict_lines(text: str) -> str:
    return f"cat <<'E'\n{text}E\n"


def test_it_is_asked_bare_and_with_the_instances_own_words_and_found_well(tmp_path: Path) -> None:
    done, asked, folder = run(tmp_path, verdict_lines(WELL))
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    assert notes == [
        "note: louder-doctor bare: python PASS, gdn PASS, topology SM75",
        "note: louder-doctor with what chat serves: python PASS, gdn PASS, topology SM75, guesses 3",
    ]
    assert (folder / "verdict").read_text().splitlines() == notes
    words = asked.splitlines()
    # a user of its own: an instance's could signal the one that serves
    users = [word for word in words if word.startswith("--property=User=")]
    assert {*users} == {f"--property=User={vllm_rig(instance_with_selftest()).accounts.doctor}"}
    assert vllm_rig(instance_with_selftest()).accounts.doctor in account_names(vllm_rig(instance_with_selftest()))
    assert vllm_rig(instance_with_selftest()).accounts.doctor not in account_names(vllm_rig())
    bare, whole = (part.split("\n") for part in asked.split("--\n")[1:])
    assert bare[0].endswith("/env/bin/louder-doctor")
    assert bare[1].startswith("--unit=")
    assert '--additional-config={"louder": true}' in whole
    assert whole[1].startswith("/srv/models/")
    assert not [word for word in whole if word.startswith(("--uds", "--middleware"))]
    assert "--property=PrivateTmp=yes" not in words
    empty = " ".join(word.partition("FileSystem=")[2] for word in words if "TemporaryFileSystem=" in word).split()
    assert {f"{path}:mode=1777" for path in ("/tmp", "/var/tmp", COMPILED)} <= {*empty}


def test_it_may_as_little_as_its_instance(tmp_path: Path) -> None:
    _, asked, _ = run(tmp_path, verdict_lines(WELL))
    box = vllm_rig(instance_with_selftest())
    text = build_unit(box, instance_with_selftest(), vllm_environment(box)).text
    folders = ("RuntimeDirectory", "CacheDirectory", "BindPaths")
    own = ("Type", "User", "Group", "Exec", "Environment", "LoadCredential", "Restart", "Timeout", "KillMode", "Slice")
    service = text.partition("[Service]")[2].partition("[Install]")[0]
    forbidden = {line for line in service.splitlines() if "=" in line and not line.startswith(("#", *own, *folders))}
    assert {"PrivateNetwork=yes", "PrivateUsers=yes", "NoNewPrivileges=yes", "RestrictNamespaces=yes"} <= forbidden
    given = {word.removeprefix("--property=") for word in asked.splitlines() if word.startswith("--property=")}
    assert forbidden <= given
    assert {line.partition("=")[0] for line in given - forbidden} == {
        *(
            "User",
            "RuntimeMaxSec",
            "TimeoutStopSec",
            "LimitCORE",
            "InaccessiblePaths",
            "TemporaryFileSystem",
            "BindsTo",
        ),
        "After",
    }


@pytest.mark.parametrize(
    ("doctor", "reason"),
    [
        (verdict_lines(WELL.replace("PASS", "FAIL")), "louder-doctor bare: python: FAIL: Python 3.10.20: FAIL"),
        (verdict_lines(WELL) + "exit 3\n", "louder-doctor bare: it exited with status 3"),
        ("while :; do echo Python PASS; done\n", "louder-doctor bare: it prints more than 65,536 bytes"),
        (
            f"[ $# = 0 ] || exit 0\n{verdict_lines(WELL)}",
            "louder-doctor with what chat serves: it reports nothing for python",
        ),
        (verdict_lines("note: louder-doctor bare: all is well\n"), "louder-doctor bare: it reports nothing for python"),
    ],
)
def test_one_that_is_not_well_ends_the_deploy(tmp_path: Path, doctor: str, reason: str) -> None:
    done, _, folder = run(tmp_path, doctor)
    assert done.returncode != 0
    assert reason in done.stdout.splitlines()
    assert not (folder / "verdict").exists()


# The form of version 0.1.3 of the plugin of the 2080 Ti write-up, with all that the write-up of 0.4.13 expects.
CHINESE = """Python 3.10.20：PASS
vLLM 0.21.0：PASS
GDN 接口检查：PASS family=legacy-gdn-linear-attn-v020
GDN 接口检查：跳过 modular-qwen-gdn-v021
插件入口发现：PASS (caovan_sm75_turbo3)
GPU 拓扑：2 x SM75 capability=(7,5)
"""


def test_the_documented_plugin_is_valid_and_its_doctors_lines_are_read() -> None:
    page = (ROOT / "docs" / "guides" / "plugins.md").read_text()
    (text,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[plugins.caovan]" in block]
    described = tomllib.loads(text)
    keys = PluginKeys.model_validate(described["plugins"]["caovan"])
    assert Input.model_validate(described["inputs"]["caovan-0.4.13"]).kind == "plugin"
    assert keys.selftest
    lines = {name: one.plan for name, one in keys.selftest.lines.items()}
    found = verdict(plan(lines=lines), CHINESE.encode(), 0, 3)
    assert found == {"python": "PASS", "vllm": "PASS", "gdn": "PASS", "topology": "SM75"}
    with pytest.raises(Refused, match="topology: not SM75"):
        verdict(plan(lines=lines), CHINESE.replace("x SM75", "x SM86").encode(), 0, 3)
