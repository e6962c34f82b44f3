"""Where programs' output is read: each place has rows in the tables of parsers, or a reason why it needs none.

A parser reads complete lines by a pattern, skips lines of other programs, and refuses output that is truncated or
incomplete: `common.run` and `manager.read_properties` in the survey, `listing` in templates/channel.sh.j2.
test_parser_fuzz.py adds, removes, moves, translates and cuts lines of the samples in tests/unit/data/parsers.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STARTS = {"run", "ended", "Popen", "check_output"}
NO_OUTPUT = "its exit status counts alone"
MESSAGE = "its output is shown to people as it is"
OURS = "it starts a program of ours, which answers in JSON or not at all"
TYPED = "each value is of a type of the channel, or refused"
ONE_WORD = "systemctl answers with one word, which is compared"
LINES = "lines are filtered by a pattern that is whole, and a program that is cut off prints nothing that fits"
SIGNED = "apt and gpgv are asked for a signed archive: without their own words there is none"
COMPARED = "its output is compared as it is: other output is a change, or explains nothing"
# file:function -> rows of tests/unit/parser_table.py, or why there is none
CALLS = {
    "checks/survey/host/entry_archives:_content": SIGNED,
    "checks/survey/host/entry_archives:read_lists": SIGNED,
    "checks/survey/host/entry_archives:verified_release": SIGNED,
    "checks/survey/host/entry_authors:read_journal": "it names an author for people, and decides nothing",
    "checks/survey/host/failure_authors:read_state_changes": "it names an author for people, and decides nothing",
    "checks/survey/host/entry_boot:_grub": COMPARED,
    "checks/survey/host/entry_boot:_made": COMPARED,
    "checks/survey/host/initramfs:list_files": COMPARED,
    "checks/survey/host/entry_debs:_members": "tarfile reads an archive whose SHA-256 is signed",
    "checks/survey/host/entry_debs:fetch_debs": NO_OUTPUT,
    "checks/survey/host/entry_generators:run_generators": NO_OUTPUT,
    "checks/survey/host/entry_readers:_sshd_rows": COMPARED,
    "checks/survey/host/entry_readers:manager_environment": COMPARED,
    "checks/survey/host/live_entries:_output": COMPARED,
    "checks/survey/host/live_entries:packet_filters": COMPARED,
    "cli/check_acceptance:find_author": "git names an author, who confirms it with the file",
    "checks/survey/host/apt:read_policies": "apt.parse_policies",
    "checks/survey/host/apt:update": "its status counts, and checks look for apt's own words in what it says",
    "checks/survey/host/boot:expanded": "bytes of a file, which are compared",
    "checks/survey/host/cards:answer": "smi.gpus",
    "checks/survey/host/cards:log": "cards.log",
    "checks/survey/host/common:born": "NUL ends each record",
    "checks/survey/host/common:ended": "what others call",
    "checks/survey/host/common:read_libraries": "common.read_libraries",
    "checks/survey/host/common:run": "what others call",
    "checks/survey/host/sandbox_escapes:look": OURS,
    "checks/survey/host/base_system:_read_audit": MESSAGE,
    "checks/survey/host/health:betraying": MESSAGE,
    "checks/survey/host/health:cards": "smi.gpus",
    "checks/survey/host/health:look": "manager.parse_unit_names",
    "checks/survey/host/kernel:look": "one word, of which folders are named",
    "checks/survey/host/kernel:modinfo": "kernel.modinfo",
    "checks/survey/host/kernel:secure_boot": "without its own words the key is not enrolled, and a check fails",
    "checks/survey/host/main:main": "a probe of templates/",
    "checks/survey/host/systemd_properties:read_exposure": "manager.read_exposure",
    "checks/survey/host/systemd_properties:read_properties": "manager.read_properties: units of containers",
    "checks/survey/host/packages:look": LINES,
    "checks/survey/host/packages:policy": "packages.policy: origins",
    "checks/survey/host/programs:run_program": "it ends with a line of ours; checks read what is before it",
    "checks/survey/host/boot_settings:sshd": MESSAGE,
    "checks/survey/host/foreign_proxies:activated": "JSON on one line",
    "checks/survey/host/trees:untouched": "it is compared by its digest",
    "checks/survey/host/units:_start": "manager.parse_call_groups",
    "checks/survey/host/units:look": "manager.parse_blocks",
    "checks/survey/host/units:_without_young_jobs": "manager.parse_blocks",
    "cli/lock_resolver/apt_archives:IsolatedApt.run_apt_get": "packages.parse_addresses",
    "cli/lock_resolver/apt_archives:IsolatedApt.has_package": "one name, which is compared with whole lines",
    "cli/lock_resolver/apt_archives:IsolatedApt.unpack_lists": "writes a verified list for apt, and reads none of it",
    "cli/lock_resolver/apt_archives:run_program": "packages.places",
    "cli/lock_resolver/apt_archives:_compare_versions": "reads no output: dpkg answers by its exit status",
    "cli/bundle_builder:_channel_addresses": OURS,
    "cli/demo:_run_verb": NO_OUTPUT,
    "cli/host_evidence:collect_failed_checks": OURS,
    "cli/rollout_steps:BoxSteps._find_check_fault": OURS,
    "cli/show_report:_run_checks": OURS,
    "cli/lock_resolver/conda:_run_solver": OURS,
    "cli/lock_resolver/package_index:index_url": "one line of pip's, whose pattern is whole; without it "
    "pip's own default holds",
    "cli/lock_resolver/wheels:resolve_closure": "uv writes a file of hashed requirements, of "
    "which each line is parsed or refused",
    "cli/init_prompts:_run_rigwright": NO_OUTPUT,
    "cli/test:_run_commands": NO_OUTPUT,
    "roles/envs/host/make:compile_library": NO_OUTPUT,
    "roles/envs/host/make:install_wheels": NO_OUTPUT,
    "roles/gateway/host/rotation/card_faults:CardConditions.ask": "tests/unit/test_rotation.py: rows that match whole",
    "roles/gateway/host/rotation/card_faults:XidLog.update": "JSON on one line",
    "roles/gateway/host/rotation/run:RotationWatch.start_check": NO_OUTPUT,
    "roles/residency/host/observation:CardSampler._run": "tests/unit/test_residency_observation.py: whole rows",
    "roles/residency/host/observation:show_units": "tests/unit/test_residency_observation.py: any output",
    "roles/residency/host/service:Residency.order": NO_OUTPUT,
    "roles/memory_records/host/start_log:_read_journal": LINES,
    "roles/memory_records/host/start_log:sync_journal": NO_OUTPUT,
    "roles/memory_records/host/record:show_unit": "each value that is used is one word or matches whole",
    "roles/nvidia_cards/host/power:_smi": "smi.gpus",
    "roles/operations/job_step_limits:end_unit": NO_OUTPUT,
    "roles/operations/job_step_limits:systemd_limit_hit": ONE_WORD,
    "roles/operations/job_step_limits:describe_excess": "the last line's number; one that is none counts as nothing",
    "roles/operations/job_step_limits:main": MESSAGE,
    "roles/operations/job_step_limits:unit_processes": ONE_WORD,
    "roles/owned_state/host/state_fingerprint:_units": "its lines are compared by their digest",
    "roles/pull/host/root_jobs:_read_state": ONE_WORD,
    "roles/pull/host/root_jobs:run_program": "one word that is compared, or a line for people",
    "roles/pull/host/root_jobs:run_root_job": MESSAGE,
    "roles/pull/host/root_jobs:wait_for_job": NO_OUTPUT,
    "roles/self_check/host/observed_host:show_units": "properties are compared with those declared; a block too few is "
    "refused",
    "roles/trees/host/tree_fingerprint:fingerprint_tree": "it is compared by its digest",
    "roles/weights/host/client:HubClient._download": OURS,
    "roles/weights/host/client:HubClient.resolve_address": OURS,
    "roles/ssh_keygen:list_agent_keys": "each line is a public key, or skipped (reader_table.py)",
    "checks/verdict_verifier:run_ssh_keygen": "its exit status decides; the signer's name is of the operator's file",
    "checks/verdict_verifier:run_ssh_keygen.run": "as above",
    "roles/ssh_keygen:run_ssh_keygen": "its exit status decides; a signature is parsed whole (reader_table.py)",
    "roles/secret_commands:run_secret_command": "its output is a secret, of which each character counts",
    "roles/weights/host/client:remove_tree": NO_OUTPUT,
    "roles/weights/host/http:_run_curl": "one line of curl's own format, in JSON",
    "roles/weights/host/packages:PackageSources._run_defaults_program": OURS,
}
# Reports of programs in shell; only of nvidia-smi tests/unit/test_stop_wait.py and its like have more
REPORTING = re.compile(
    r"\b(systemctl (?:show|list-[a-z]+)|systemctl --version|dpkg-query|apt-cache [a-z$]+|apt-mark showhold|apt-get -s"
    r"|apt(?: \"\$@\")? -s|indextargets|ss -[A-Za-z]+|ip -o|df -|df --|modinfo|mokutil|nvidia-smi|container inspect"
    r"|dkms status|nvcc\"? --version)"
)
# template -> row of tests/unit/probe_parsers.py, or why there is none
SCRIPTS = {
    "containers/in_force.sh.j2": "one value, which is compared with itself",
    "containers/refresh.sh.j2": NO_OUTPUT,
    "containers/release.sh.j2": "names are compared with a list of ours",
    "containers/stale.sh.j2": LINES,
    "cuda_toolkit/install.sh.j2": MESSAGE,
    "cuda_toolkit/probe.sh.j2": TYPED,
    "debs/install.sh.j2": NO_OUTPUT,
    "debs/look.sh.j2": "simulation.parse",
    "engines/apart.sh.j2": ONE_WORD,
    "gateway/rotation.service.j2": "a comment names the program",
    "residency/residency.service.j2": "a comment names the program",
    "generation/activate.sh.j2": LINES,
    "generation/freed.sh.j2": LINES,
    "gateway/placed.j2": "one text is searched in it",
    "generation/state.sh.j2": "state: units",
    "html/page.html.j2": "a heading names the program",
    "image/install.sh.j2": "a number, or the comparison fails and the job with it",
    "look/ledger.sh.j2": ONE_WORD,
    "look/room.sh.j2": TYPED,
    "look/state.sh.j2": ONE_WORD,
    "look/unit.sh.j2": TYPED,
    "look/use.sh.j2": "use",
    "monitoring/service.j2": ONE_WORD,
    "monitoring/start.sh.j2": ONE_WORD,
    "nvidia_driver/apt.sh.j2": "simulation.parse",
    "nvidia_driver/cards.sh.j2": "smi.gpus",
    "nvidia_driver/install.sh.j2": LINES,
    "nvidia_driver/look.sh.j2": "simulation.parse",
    "nvidia_driver/release.sh.j2": "names are compared with a list of ours",
    "packages/install.sh.j2": LINES,
    "packages/missing.sh.j2": ONE_WORD,
    "packages/look.sh.j2": "simulation.parse",
    "probe/basics.sh.j2": "probe: ss",
    "probe/containers.sh.j2": "containers probe: apt_cache",
    "probe/driver.sh.j2": "driver probe: apt_cache",
    "probe/packages.sh.j2": "driver probe: dpkg_query",
    "probe/probe.sh.j2": "probe: df",
    "probe/units.sh.j2": TYPED,
    "probe/survey.sh.j2": "a draft for people is made of it; tests/unit/test_survey.py has what of it may be missing",
    "removal/model.sh.j2": LINES,
    "removal/remove.sh.j2": LINES,
    "serving/by_hand.sh.j2": LINES,
    "serving/ready.j2": ONE_WORD,
    "serving/record.sh.j2": ONE_WORD,
    "serving/seed.j2": ONE_WORD,
    "sharing/share.service.j2": ONE_WORD,
    "sharing/start.sh.j2": ONE_WORD,
    "theirs/look.sh.j2": TYPED,
    "theirs/take.sh.j2": ONE_WORD,
}


def _starts_program(node: ast.AST) -> bool:
    """Whether a node is a call that starts a program, or is handed what does."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name) and node.func.id in ("run", "run_program", "ended", "_start"):
        return True
    return any(
        isinstance(one, ast.Attribute)
        and isinstance(one.value, ast.Name)
        and one.value.id in ("subprocess", "common")
        and one.attr in STARTS
        for one in (node.func, *node.args)
    )


def _calls_in_node(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inner = (*names, child.name) if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else names
        if _starts_program(child):
            yield ".".join(names)
        yield from _calls_in_node(child, inner)


def program_calls() -> set[str]:
    """Functions of the product that start programs."""
    found = set()
    for folder in ("checks", "cli", "rigwright", "roles"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if "subprocess" in text or "common." in text or "_start(" in text or path.stem == "common":
                place = str(path.relative_to(ROOT).with_suffix(""))
                found |= {f"{place}:{name}" for name in _calls_in_node(ast.parse(text)) if name}
    return found


def reporting_scripts() -> set[str]:
    """Templates in which programs report something."""
    folder = ROOT / "templates"
    return {str(path.relative_to(folder)) for path in folder.rglob("*.j2") if REPORTING.search(path.read_text())}
