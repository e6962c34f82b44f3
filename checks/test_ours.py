"""Rigwright's own objects in addition to the served ones, and the system below them."""

import hashlib
import re
from pathlib import PurePosixPath

from checks import DEPLOY, check, expect
from checks.drift_text import format_day, format_first_lines, shorten_digest
from checks.remedy import (
    Remedy,
    host_command,
    instruction,
    kill_processes,
    remove_access_lists,
    remove_paths,
    restart_units,
)
from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import GROUND, required_space
from checks.survey.managed_files import OURS, declared_folders
from rigwright.fetch_job_spec import authority_path
from rigwright.gateway.gateway_units import certificate_owners
from rigwright.gateway.secrets_distribution import keys_path, pair_path
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import CACHES, WARM, Instance
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.monitoring_schema import Monitoring, all_service_users
from rigwright.model.network import DownloadNetwork
from rigwright.model.roots import Roots
from rigwright.monitoring.monitoring_units import PACKAGED_USER, MonitoringService, monitoring_folder
from rigwright.nginx_package import LEFTOVER_FILES
from rigwright.serving.instance_units import STOPPED
from rigwright.weights.verification import REHASH
from rigwright.weights.weight_server import config_path

MIB = 1 << 20
INODES = 1000  # of a file system: a deploy makes some hundred files beside an environment's
# Names in the folder of the rig's configuration; a run that was cut off may have left one that ends so
CONFIG = ("generations", "current", "credentials", "activating", "cards", "driver.json", "self_check", STOPPED)
CONTAINERS = "containers"
NEW = ".rigwright-new"
WORKS = re.compile(rf"/(rw-job-[a-z0-9.-]+|{REHASH})\.service(/|$)")


@check(
    "O01",
    "Rigwright's directories are root's, with the right modes",
    severity="high",
    why="a service that cannot enter a directory does not restart, and readable credentials can be stolen",
)
def test_folders(survey: SurveyAnswers, roots: Roots) -> None:
    wanted = declared_folders(roots)
    entries = [one.entry for one in survey.read(OURS).folders]
    found = [f"nothing about {path}" for path in wanted if path not in {one.path for one in entries}]
    for entry in entries:
        # permission to write is B02's; the roots themselves are F01's
        mode = wanted.get(entry.path)
        if mode and (entry.kind != "folder" or entry.uid or (entry.mode & ~0o022) != mode):
            found.append(f"{entry} instead of {mode:o}")
    expect(format_first_lines(found) or "directories owned by root", "directories owned by root", DEPLOY)


@check(
    "O02",
    "the ledger exists, and lists all that Rigwright created",
    severity="high",
    why="`remove` leaves entries that the ledger lacks, and until then they count as unmanaged",
)
def test_ledger(survey: SurveyAnswers, roots: Roots, service_users: tuple[str, ...]) -> None:
    ledger = survey.read(OURS).ledger
    entry = ledger.entry
    right = entry.kind == "file" and (entry.uid, entry.mode) == (0, 0o644)
    found = "a file owned by root" if right else f"{entry}"
    own = host_command("chown root {0}; chmod 644 {0}", roots.ledger)
    restore = instruction(f"restore {roots.ledger} from a backup")
    expect(found, "a file owned by root", own if entry.kind == "file" else restore)
    # files from before Rigwright are not Rigwright's, and have no record
    made = [path for path in declared_folders(roots) if f"dir {PurePosixPath(path).parent}" in ledger.lines]
    wanted = [*(f"user {name}" for name in service_users), *(f"dir {path}" for path in made)]
    lacking = [line for line in wanted if line not in ledger.lines]
    expect(
        format_first_lines([f"no {line}" for line in lacking]) or "everything that Rigwright created",
        "everything that Rigwright created",
        host_command("printf '%s\\n' {} >> {}", lacking, roots.ledger),
    )
    expect("a truncated last line" if not ledger.whole else "whole", "whole", DEPLOY)


@check(
    "O03",
    "the ledger lists no unmanaged entries",
    severity="critical",
    why="a deploy removes listed users that it does not need, and `remove` deletes all listed entries",
)
def test_ledger_of_others(survey: SurveyAnswers, roots: Roots, service_accounts: ServiceAccounts) -> None:
    odd = [line for line in survey.read(OURS).ledger.lines if not _may(line, roots, service_accounts)]
    cure = instruction(f"remove those lines from {roots.ledger}")
    expect(format_first_lines(odd), f"none but our own in {roots.ledger}", cure, holds=not odd)


def _may(line: str, roots: Roots, service_accounts: ServiceAccounts) -> bool:
    kind, _, what = line.partition(" ")
    if not line or kind in ("dir", "package", "mask", "record"):
        return True  # a folder goes when it is empty, a package when nothing needs it, a record with its tree
    if ".." in what.split("/"):
        return False
    if kind == "account":
        return what.startswith(f"{PACKAGED_USER} ")
    if kind == "user":
        # the name alone is what engines of the first versions ran as: a way back to those needs it
        return what.startswith(f"{service_accounts.prefix}-") or what in (
            service_accounts.prefix,
            service_accounts.gateway,
            service_accounts.router,
            service_accounts.doctor,
            service_accounts.hub,
            service_accounts.pull,
            *all_service_users(service_accounts.prefix).values(),
        )
    if kind == "tree":
        return what.startswith((f"{roots.software}/", f"{CACHES}/", f"{WARM}/"))
    inside = (f"{roots.models}/", f"{roots.state}/", f"{roots.config}/")
    return kind == "file" and (what.startswith(inside) or what in LEFTOVER_FILES)


@check(
    "O04",
    "secrets are readable by root only, and none are left over",
    severity="critical",
    why="a key gives access to the engine in its owner's name; an unused key may be an attacker's",
)
def test_secrets(
    survey: SurveyAnswers,
    roots: Roots,
    declared_instances: tuple[Instance, ...],
    gateway_entry: Gateway | None,
    watched_services: tuple[MonitoringService, ...],
) -> None:
    own = survey.read(OURS)
    odd = [str(one) for one in own.secrets if (one.kind, one.mode, one.uid) != ("file", 0o600, 0)]
    expect(
        format_first_lines(odd) or "files of mode 600 of user 0",
        "files of mode 600 of user 0",
        DEPLOY,
    )
    listed = own.secrets_listed
    unlist = sum((remove_access_lists(path) for path in listed), Remedy(()))
    expect(format_first_lines(listed) or "no access list", "no access list", unlist)
    cure = host_command(
        "command -v chattr > /dev/null || apt-get install --yes e2fsprogs; chattr -ia -- {}", own.secrets_stuck
    )
    expect(format_first_lines(own.secrets_stuck) or "files that can be replaced", "files that can be replaced", cure)
    wanted = {one.key_name for one in declared_instances} | {*own.needed}
    if gateway_entry:
        wanted |= {keys_path(roots).rpartition("/")[2]} if gateway_entry.serves_clients else set()
        wanted |= {pair_path(roots, name).rpartition("/")[2] for name in certificate_owners(gateway_entry)}
    wanted |= {path.rpartition("/")[2] for one in watched_services for path in one.secrets}
    extra = [one.path for one in own.secrets if one.path.rpartition("/")[2].removesuffix(NEW) not in wanted]
    expect(format_first_lines(extra) or "nothing else", "nothing else", remove_paths(*extra))


@check(
    "O05",
    "the configuration directory contains only declared files",
    severity="low",
    why="files there are in effect; a file that no deploy has written was put there by hand",
)
def test_config(
    survey: SurveyAnswers,
    roots: Roots,
    declared_cards: tuple[Card, ...],
    monitoring_entry: Monitoring | None,
    share_entry: ShareEntry | None,
    containers_entry: ContainersEntry | None,
    download_network: DownloadNetwork,
) -> None:
    wanted = {*CONFIG}
    wanted |= {config_path(roots).rpartition("/")[2]} if share_entry else set()
    wanted |= {monitoring_folder(roots).rpartition("/")[2]} if monitoring_entry else set()
    wanted |= {CONTAINERS} if containers_entry and declared_cards else set()
    wanted |= {authority_path(roots).rpartition("/")[2]} if download_network.ca_certificates else set()
    extra = [name for name in survey.read(OURS).config if name.removesuffix(NEW) not in wanted]
    expect(
        format_first_lines(extra) or "nothing else",
        "nothing else",
        remove_paths(*(f"{roots.config}/{name}" for name in extra)),
    )


@check(
    "O06",
    "the CA certificates trusted for downloads are the declared ones",
    severity="high",
    why="another CA can impersonate a mirror, until a hash stops it",
)
def test_authorities(survey: SurveyAnswers, roots: Roots, download_network: DownloadNetwork) -> None:
    found = survey.read(OURS).files.get(authority_path(roots), "nothing about it")
    wanted = (
        hashlib.sha256(download_network.ca_certificates.encode()).hexdigest()
        if download_network.ca_certificates
        else ""
    )
    there, declared = (shorten_digest(one) or "no file" for one in (found, wanted))
    expect(there, declared, DEPLOY, holds=found == wanted)


@check(
    "O07",
    "none of Rigwright's files is dated in the future",
    severity="low",
    why="the clock was wrong at the time: actions that are due days later are never due",
)
def test_times(survey: SurveyAnswers) -> None:
    ahead = survey.read(OURS).ahead
    found = [f"{one.path} of {format_day(one.mtime)}" for one in ahead]
    expect(
        format_first_lines(found) or "nothing",
        "nothing",
        host_command("timedatectl set-ntp true; touch -- {}", [one.path for one in ahead]),
    )


@check(
    "O08",
    "file systems that a deploy writes to are writable and have room",
    severity="high",
    why="a full or failing disk stops services at their next start, and a deploy halfway",
)
def test_disks(survey: SurveyAnswers, roots: Roots) -> None:
    ground = survey.read(GROUND)
    need = required_space(roots)
    found = [f"nothing about {path}" for path in need if path not in {one.path for one in ground.disks}]
    found += [f"{one.path} read-only" for one in ground.disks if one.read_only]
    full = [one for one in ground.disks if one.free < need.get(one.path, 0)]
    found += [f"{one.path} with {one.free // MIB} MiB free" for one in full]
    found += [
        f"{one.path} with room for {one.inodes} files"
        for one in ground.disks
        if one.inodes is not None and one.inodes < INODES
    ]
    expect(
        format_first_lines(found) or "space on all of them",
        "space on all of them",
        instruction("free some space (`df -h`), or see in `dmesg` why it is read-only"),
    )
    stuck = [one.entry.path for one in survey.read(OURS).folders if one.stuck]
    expect(
        format_first_lines(stuck) or "no immutable directory",
        "no immutable directory",
        host_command(
            "command -v chattr > /dev/null || apt-get install --yes e2fsprogs; chattr -ia -- {}",
            stuck,
        ),
    )


@check(
    "O09",
    "the journal is kept",
    severity="high",
    why="faults of cards, disks and services show only in the journal; without it, they go unnoticed",
)
def test_journal(survey: SurveyAnswers) -> None:
    journal = survey.read(GROUND).journal
    # one that was removed under it is not a file of anybody's any more
    kept = [path for path in journal.files if path.endswith(".journal") and "/system" in path]
    found = "a journal that is kept" if kept else "one that is not kept" if journal.runs else "no systemd-journald"
    names = [*dict.fromkeys((*journal.masked, "systemd-journald.service"))]
    unmask = host_command("systemctl unmask {}; systemctl restart systemd-journald", names)
    expect(found, "a journal that is kept", unmask)
    expect(format_first_lines(journal.masked) or "no masked unit", "no masked unit", unmask)
    settings = journal.settings
    odd = [f"Storage={settings['Storage']}"] if settings.get("Storage") == "none" else []
    level = settings.get("MaxLevelStore", "debug")
    odd += [f"MaxLevelStore={level}"] if level in ("emerg", "alert", "crit", "err", "0", "1", "2", "3") else []
    odd += ["ReadKMsg=no"] if settings.get("ReadKMsg", "yes").lower() in ("no", "false", "off", "0", "n", "f") else []
    cure = instruction("remove it from journald.conf or journald.conf.d") + restart_units("systemd-journald")
    expect(format_first_lines(odd) or "settings that keep it", "settings that keep it", cure)


@check(
    "O11",
    "only Rigwright's own runs hold its locks",
    severity="high",
    why="a lock that is never released blocks downloads and hashes of weights, without an error",
)
def test_locks(survey: SurveyAnswers) -> None:
    found = {
        one.pid: f"{one.lock} by {one.name} (pid {one.pid})"
        for one in survey.read(GROUND).held
        if one.lock != "lease" and not any(WORKS.search(line) for line in one.groups)
    }
    expect(format_first_lines([*found.values()]) or "no other process", "no other process", kill_processes(found))
