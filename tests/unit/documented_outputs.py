"""`python -m tests.unit.documented_outputs`: writes what pages show of commands' output anew, as a terminal of 80
columns has it.

A host's findings are given here; the real code makes the operator's text of them.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

import click
import pytest
from _pytest._io import TerminalWriter

from checks import Drift, pytest_frame, test_base, test_host_changes
from checks.cause_facts import CauseFacts
from checks.cause_rules import CAUSE_RULES
from checks.change_review.class_checks import CLASS_CHECKS
from checks.change_review.fingerprint_diff import HostChange, UnacceptedChanges
from checks.failure_causes import group_failures
from checks.host_report import CheckCall
from checks.report import ChecksReporter
from checks.result_waivers import apply_waivers
from checks.survey.accounts import SurveyUser
from cli import bench_speed, check_history, show_deployed
from cli.deploy_run import print_line
from cli.plan import HostPlan, _print_plans
from cli.show_advisories import print_finding
from cli.show_variants import variants
from cli.status_table import HostStatus, InstanceStatus, describe_hosts, print_status_table
from cli.tables import print_paragraph
from rigwright.advisories.audit import audit
from rigwright.check_waivers import describe_observed
from rigwright.engines.metrics import EngineMetrics
from rigwright.host.deploy_lock_state import LockHolder
from rigwright.inventory import hosts, load_rig
from rigwright.model.waiver_schema import WaiverEntry
from rigwright.monitoring.self_check_history import SelfCheckEvent
from rigwright.operate.instance_health import ResidencyObservation
from rigwright.operate.instance_state import GenerationObservation, InstanceState, StateFacts, assess_state
from rigwright.patches import apply
from rigwright.patches import patch as patches
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.stages import plan_deploy
from rigwright.plugins.plugin import SelftestKeys
from rigwright.plugins.verdict import verdict
from rigwright.project_root import ROOT
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing
from tests.documented_output import PAGES, compare_page
from tests.unit import shipped_inventories
from tests.unit.mornings import BOOT, CHAT, down
from tests.unit.plugin_samples import SELFTEST
from tests.unit.samples import NOW, sample_facts
from tests.unit.test_baseline import FINGERPRINT

MISSING = ("curl", "python3-venv", "cmake", "g++", "ninja-build")
INVENTORY = "/home/ana/boxes/rig.py"
COLUMNS = 80


@contextmanager
def captured_terminal() -> Iterator[Callable[[], str]]:
    """Standard output as a terminal; gives what was printed there since, as a page has it."""
    told = io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {"COLUMNS": str(COLUMNS)}))
        for module in ("cli.tables", "cli.status_table"):
            stack.enter_context(patch(f"{module}.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))))
        stack.enter_context(redirect_stdout(told))
        yield lambda: click.unstyle(told.getvalue())


def _render_plan() -> str:
    declared = {"instances": {"chat": {"variant": "llamacpp/demo", "port": 8020}}}
    ((_, data),) = hosts(
        {"box1": {"ssh_hostname": "192.0.2.7", "mirrors": {"shelf": ["http://192.0.2.1"]}, **declared}}
    )
    one = load_rig(data["rig"])
    made = plan_deploy(build_target_state(one, sample_facts(missing_packages=MISSING)), ObservedServing())
    state = assess_state("chat", StateFacts(generation=GenerationObservation(None, "", "")))
    with captured_terminal() as printed:
        _print_plans({"box1": HostPlan(made, [], [], None, [], [], [], [], one.digest, [state.describe()], [])})
        text = printed()
    # the digest of the lock moves with each lock
    return text[: text.index("box1: lock and bundle")]


def _render_rollback() -> str:
    note = "the host runs generation 1, and the inventory declares another"
    one = InstanceStatus("chat", "other generation", note, 8040.0, 0, 1_100_000_000, port=8020, slots=4)
    one = replace(one, variant="llamacpp/demo", declared="llamacpp/wide", context_per_sequence=1024)
    seen = [HostStatus("box1", True, generation=1, instances=[one])]
    digests = ("446cd978a919", "88b3e9f10509")
    times = ("2026-11-21T13:23:34Z", "2026-11-21T13:26:27Z")
    generations = tuple(
        ObservedGeneration(number, digest, digest, time, True)
        for number, (digest, time) in enumerate(zip(digests, times, strict=True), 1)
    )
    found = ObservedServing(generations=generations, current=1)
    with captured_terminal() as printed:
        print_status_table(seen)
        for line in describe_hosts(seen, "boxes/rig.py"):
            print_paragraph(line)
        click.echo()
        seen = SimpleNamespace(name="box1"), (found, digests[1])
        with patch.object(show_deployed, "map_inventory", lambda *asked: ([seen], {})):
            show_deployed.generations.main([__file__], standalone_mode=False)
        return printed()


def _print_status(seen: list[HostStatus]) -> str:
    with captured_terminal() as printed:
        print_status_table(seen)
        for line in describe_hosts(seen, "rig.py"):
            print_paragraph(line)
        return printed()


def _render_status() -> str:
    chat = InstanceStatus("chat", "ready", "", 183600.0, variant="vllm/dual", port=8020, cards=[0, 1], slots=4)
    metrics = EngineMetrics(kv_used=0.41, running=3, waiting=0)
    chat = replace(chat, context_per_sequence=65536, metrics=metrics, tokens_a_second=164.0, current=True)
    chat = replace(chat, declared="vllm/dual")
    note = "no answer and no step for 240 s"
    draft = InstanceStatus("draft", "wedged", note, 240.0, variant="llamacpp/65k", port=8021, cards=[2], slots=1)
    draft = replace(draft, context_per_sequence=65536, current=True, declared="llamacpp/65k")
    return _print_status([HostStatus("box1", True, generation=7, declared=True, instances=[chat, draft])])


def _render_asleep() -> str:
    chat = InstanceStatus("chat", "ready", "", 4000.0, variant="llamacpp/65k", port=8020, cards=[0], current=True)
    loaded = ResidencyObservation("awake", load_s=13.2)
    reason = "its engine ended with status 1"
    entries: list[tuple[str, InstanceState, str, ResidencyObservation]] = [
        ("chat", "ready", "", loaded),
        ("code", "asleep", "", replace(loaded, phase="asleep")),
        ("draft", "failed", reason, replace(loaded, phase="asleep", failed=reason)),
        ("mini", "starting", "", replace(loaded, phase="starting", waiting=2)),
        ("tiny", "stopped by hand", "since 2026-11-22 09:12 UTC", replace(loaded, phase="asleep")),
    ]
    rows = [
        replace(chat, instance=name, state=state, note=note, on_demand=entry, port=8020 + at)
        for at, (name, state, note, entry) in enumerate(entries)
    ]
    return _print_status([HostStatus("box1", True, generation=7, declared=True, instances=rows)])


def _render_refusal() -> str:
    holder = LockHolder("ana@desk", "23459", "2026-11-21 13:28:55 UTC", f"deploy of {INVENTORY}")
    with captured_terminal() as printed:
        print_line(f"box1: refused: {holder}")
        return printed()


def _make_failure() -> tuple[pytest_frame.Result, Drift]:
    name = "rigwright"
    (mark,) = (one for one in test_base.test_users.pytestmark if one.name == "check")
    found = SurveyUser(name, 990, 990, "/nonexistent", "/bin/bash")
    survey = SimpleNamespace(read=lambda section: SimpleNamespace(user=lambda asked: found))
    with pytest.raises(Drift) as drift:
        test_base.test_users(survey, (name,))
    call = CheckCall(drift.value, 0.0, 0.0)
    result = pytest_frame.build_result(mark.kwargs, "", call, "", INVENTORY, "box1", several=True)
    return result, drift.value


def _render_check() -> str:
    result, _ = _make_failure()
    facts = CauseFacts("boxes/rig.py", instances=(replace(CHAT, state="stopped by hand", stopped_at=BOOT),))
    with checks_reporter() as (reporter, printed):
        for cause in group_failures(facts, down(), CAUSE_RULES):
            reporter.print_cause("box1", cause)
        reporter.print_failure("box1", result)
        reporter._tw.line("box1: does not match its rig (138 ok, 14 failed, 65 skipped)")
        return printed()


def _render_waivers() -> str:
    result, drift = _make_failure()
    reason = "the vendor's agent runs as this user until its next release"
    observed = describe_observed(*drift.items[0])
    waiver = WaiverEntry(check="B01", observed=observed, owner="ana", reason=reason, until="2027-03-31")
    with checks_reporter() as (reporter, printed):
        reporter.print_waived("box1", apply_waivers(result, drift.items, [waiver], "2027-01-15"))
        reporter._tw.line("box1: conforms, 1 failure is waived (197 ok, 0 failed, 1 waived, 65 skipped)")
        return printed()


CLASSES = {one.name: one for one in CLASS_CHECKS}


def _render_changes() -> str:
    (mark,) = (one for one in vars(test_host_changes)["test_sudo"].pytestmark if one.name == "check")
    rule = HostChange(
        "sudo",
        "/etc/sudoers.d/ops",
        "new",
        now="file 0440 root:root",
        since="2027-01-15 06:12",
        author="while alice was logged in",
    )
    job = HostChange("cron", "/etc/cron.d/nightly", "changed", *(f"file 0644 root:root {one * 32}" for one in "ab"))
    with checks_reporter() as (reporter, printed):
        for spec, change in ((CLASSES["sudo"], rule), (CLASSES["cron"], job)):
            with pytest.raises(UnacceptedChanges) as changes:
                raise UnacceptedChanges(spec.label, (change,))
            result = pytest_frame.build_result(
                mark.kwargs | {"identifier": spec.id},
                "",
                CheckCall(changes.value, 0.0, 0.0),
                "",
                INVENTORY,
                "box1",
                several=True,
            )
            reporter.print_changes("box1", result)
        reporter._tw.line("box1: conforms, 2 changes are not accepted (197 ok, 0 failed, 2 changed, 65")
        reporter._tw.line("  skipped)")
        reporter._tw.line("box1: after a review: `rigwright check --limit box1 boxes/rig.py --accept`")
        return printed()


class _TerminalText(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def checks_reporter() -> Iterator[tuple[ChecksReporter, Callable[[], str]]]:
    """The reporter of checks on a terminal; gives what it has printed."""
    written = TerminalWriter(_TerminalText())
    written.fullwidth, written.hasmarkup = COLUMNS, False
    one = ChecksReporter.__new__(ChecksReporter)
    one.__dict__.update(_tw=written, config=SimpleNamespace(option=SimpleNamespace(verbose=0)))
    yield one, lambda: str(written._file.getvalue())


def _render_speed() -> str:
    now = FINGERPRINT.model_copy(update={"driver": "590.10", "power_w": (230.0,)})
    with captured_terminal() as printed:
        bench_speed.print_changes([*now.describe_changes(FINGERPRINT)])
        return printed()


def _render_patch() -> str:
    one = patches.load_patch(ROOT / "patches" / "mamba-prefix-cache-mtp")
    with pytest.raises(apply.PatchRefused) as refused:
        apply.outcome(one.plan, lambda path: b"another version's")
    with captured_terminal() as printed:
        print_line(str(refused.value))
        return printed()


def _render_doctor() -> str:
    lines = {name: one.plan for name, one in SelftestKeys(**SELFTEST).lines.items()}
    said = b"Python 3.10.20: PASS\nGDN interface (legacy): PASS\nTopology: 2 x SM75\nAutoSpec = 3\n"
    found = verdict({"lines": lines, "seconds": 60, "largest": 65536}, said, 0, 3)
    with captured_terminal() as printed:
        print_line(f"box1: louder-doctor with what chat serves: {', '.join(' '.join(one) for one in found.items())}")
        return printed()


def _render_variants() -> str:
    with captured_terminal() as printed:
        asked = ["--need", "streams", "--cards", "2", "--card", "rtx-3090"]
        with suppress(SystemExit):
            variants.main(asked, standalone_mode=False)
        return printed()


def _render_advisories() -> str:
    with TemporaryDirectory() as folder, captured_terminal() as printed:
        rigs = shipped_inventories.load_rigs("rig3090", Path(folder))
        made = audit({"rig3090": rigs["rig3090"]})
        found = {one.advisory: one for one in made[0].findings}
        for name in ("PYSEC-2026-4199", "CVE-2026-114051", "PYSEC-2026-3408", "CVE-2026-114053"):
            print_finding(found[name])
        return printed()


def _render_history() -> str:
    change = {
        "check": "U02",
        "severity": "critical",
        "part": "",
        "text": "drop-in /etc/systemd/system/x.service.d/x.conf",
    }
    rows: list[dict[str, object]] = [
        {"time": 0, "outcome": "ok", "failed": [], "recovered": []},
        {"time": 750, "outcome": "failing", "failed": [change], "recovered": []},
        {"time": 1230, "outcome": "ok", "failed": [], "recovered": [change]},
        {"time": 7500, "outcome": "skipped", "failed": [], "recovered": []},
    ]
    held = "a deploy, start or stop holds the deploy lock"
    events = [
        SelfCheckEvent.model_validate(
            {
                **row,
                "time": NOW + float(str(row["time"])),
                "reason": held * (row["outcome"] == "skipped"),
                "generation": 1,
            }
        )
        for row in rows
    ]
    with captured_terminal() as printed:
        check_history.print_events({"box1": events})
        return printed()


OUTPUT_MAKERS: dict[str, Callable[[], str]] = {
    "plan": _render_plan,
    "rolled-back": _render_rollback,
    "status": _render_status,
    "asleep": _render_asleep,
    "refused": _render_refusal,
    "check": _render_check,
    "changes": _render_changes,
    "waivers": _render_waivers,
    "history": _render_history,
    "speed": _render_speed,
    "patch": _render_patch,
    "doctor": _render_doctor,
    "variants": _render_variants,
    "advisories": _render_advisories,
}


def main() -> None:
    """Write what is stale, and say which pages."""
    made = {name: make() for name, make in OUTPUT_MAKERS.items()}
    for path in PAGES:
        text, right = compare_page(path, made)
        if text != right:
            path.write_text(right)
            sys.stdout.write(f"{path.relative_to(ROOT)} written anew\n")


if __name__ == "__main__":
    main()
