"""Instances, as a client and as an attacker would find them."""

import re
import shlex
from itertools import zip_longest

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from checks.nvidia_smi import ask
from rigwright.declaration.rig import Instance, Rig
from rigwright.engines.kind import Expanded, Service
from rigwright.gateway.service import door
from rigwright.host import channel
from rigwright.host.facts import HostFacts
from rigwright.host.plan import Desired
from rigwright.nvidia.cards import smi as nvidia_smi
from rigwright.render import render
from rigwright.serving.generation import Generation
from rigwright.serving.listeners import LOOPBACK, LOOPBACK_6, PREFIX, holder, names
from rigwright.serving.live import Served
from rigwright.serving.units import OWNED, PROCESS, UNITS, credential_path, environment, strange

# Process ids of a unit, workers included; none where systemd does not say its control group, for in no group are all.
OWN = r"""
group=$(systemctl show --property=ControlGroup --value {unit} | sed 's/[][\.*^$+?(){{}}|]/\\&/g')
[ -n "$group" ] || exit 0
grep -lE "^[0-9]+:[^:]*:$group(/|$)" /proc/[0-9]*/cgroup 2> /dev/null | sed 's|.*/proc/||; s|/cgroup$||'
true
"""
# Process ids of what was started from an engine's folder, be it a script or an environment's Python, which is a link to
# the system's own: what runs code from there has mapped it. None of what is in a slice of ours. A job that installs one
# may start it; who only reads a file there has started nothing.
STRAY = """
engines={engines}
{{ grep -lsz /engines/ /proc/[0-9]*/cmdline; grep -lsF "$engines" /proc/[0-9]*/maps; }} \\
  2> /dev/null | cut -d / -f 3 | sort -un | while read -r pid; do
  grep -qE '/rigwright(-[^/]*)?[.]slice/|/rw-job-' "/proc/$pid/cgroup" && continue
  grep -F " $engines" "/proc/$pid/maps" | grep -q '^[^ ]* [^ ]*x' && echo "$pid" && continue
  tr '\\0' '\\n' < "/proc/$pid/cmdline" | head -n 3 | while IFS= read -r word; do
    for place in "$(readlink -f -- "$word")" "$(readlink -f -- "${{word%/*}}")/${{word##*/}}"; do
      case $place in "$engines"*) [ ! -f "$place" ] || [ ! -x "$place" ] || echo "$pid" ;; esac
    done
  done
done 2> /dev/null | sort -un
"""


@check("S01", "it runs, now and after a reboot", severity="critical", why="nobody is served")
def test_active_and_enabled(host: Host, instance: Instance) -> None:
    found = host.run("systemctl is-active %s; systemctl is-enabled rigwright.target", instance.unit)
    expect(found.stdout.split(), ["active", "enabled"], DEPLOY)
    wants = host.check_output("systemctl show --property=Wants --value rigwright.target").split()
    expect(instance.unit in wants, True, DEPLOY)


@check(
    "S02",
    "the running process was started from the declared unit",
    severity="high",
    why="a unit that was changed, by hand or by a run that died, serves something else now or after the next restart",
)
def test_process_is_current(host: Host, found: Served, wanted: Generation, instance: Instance) -> None:
    unit = next(one for one in wanted.units if one.instance == instance.name)
    process = found.processes.get(unit.name)
    expect(process.started_from if process else "no process", unit.slot.started_from, DEPLOY)
    current = process is not None and process.key_current and process.weights_current
    expect(current, True, f"another key, or other weights, than lie there now: {DEPLOY}")
    for name in (unit.name, *names(instance.port)):
        expect(host.check_output("systemctl show --property=DropInPaths --value %s", name), "", "remove the drop-in")


@check("S03", "its exposure is within the budget", severity="high", why="a hole in the server is a hole in the box")
def test_exposure(host: Host, instance: Instance, service: Service) -> None:
    sandbox = service.sandbox
    budget = sandbox.exposure_with_cards if instance.cards else sandbox.exposure
    said = host.run("systemd-analyze security --no-pager %s", instance.unit).stdout
    found = float(re.findall(r"exposure level for .*: ([0-9.]+)", said)[0])
    expect(found, f"at most {budget}", DEPLOY, holds=found <= budget)


@check(
    "S04",
    "systemd alone holds its port, on the loopback interface",
    severity="critical",
    why="the API has no TLS and one key; whoever else holds the port is sent that key",
)
def test_listens_on_loopback(host: Host, found: Served, instance: Instance) -> None:
    service, socket = names(instance.port)
    lines = host.check_output(f"ss -Hltnp 'sport = :{instance.port:d}'").splitlines()
    at = frozenset(line.split()[3] for line in lines)
    expect(sorted(at), f"{LOOPBACK}:{instance.port}, and {LOOPBACK_6}", DEPLOY, holds=holder(instance.port).holds(at))
    systemds = all('("systemd",pid=1,' in line for line in lines) and socket in found.sockets
    expect(systemds, True, f"end who listens there, and {DEPLOY}")
    carrier = found.processes.get(service)
    expect(carrier.state if carrier else "not there", "active", DEPLOY)


@check(
    "S07", "its key is root's alone and in no argument or environment", severity="critical", why="a key others can read"
)
def test_key_is_secret(host: Host, rig: Rig, instance: Instance) -> None:
    path = credential_path(rig, instance)
    quoted = shlex.quote(path)
    expect(host.run("stat -c '%%a %%U' %s", path).stdout.strip(), "600 root", DEPLOY)
    leaks = host.run(
        f"for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ {UNITS}/rigwright-*; do "
        f"tr '\\0' '\\n' < $f 2>/dev/null | grep -qFf {quoted} && echo $f; done; true"
    )
    expect(leaks.stdout.split(), [], "change the key, and find out who put it there")


@check(
    "S08",
    "it sees the cards it was given, and no others",
    severity="critical",
    why="it serves on the CPU, or on another's card",
)
def test_sees_its_cards(host: Host, facts: HostFacts, instance: Instance) -> None:
    if not instance.cards:
        pytest.skip("serves on the CPU")
    own = host.check_output(OWN.format(unit=shlex.quote(instance.unit))).split()
    found = sorted({app.address for app in ask(host, nvidia_smi.APPS, nvidia_smi.apps) if str(app.pid) in own})
    wanted = sorted(facts.pci_cards[index][0] for index in instance.cards)
    expect(found, wanted, f"look at `nvidia-smi` and `journalctl -u {instance.unit}` for CUDA errors")


@check(
    "S09", "a stop leaves no process behind", severity="high", why="a worker that outlives its service keeps its memory"
)
def test_stop_takes_all(host: Host, rig: Rig, instance: Instance) -> None:
    found = host.check_output("systemctl show --property=KillMode --value %s", instance.unit)
    expect(found, "control-group", DEPLOY)
    stray = host.run(STRAY.format(engines=shlex.quote(rig.installed(""))))
    expect(stray.stdout.split(), [], "end it: no unit of this rig started it")


@check(
    "S10",
    "every rigwright unit is declared",
    severity="high",
    why="what is not declared holds memory, a port and a key",
)
def test_nothing_undeclared(rig: Rig, found: Served) -> None:
    ports = {name for instance in rig.instances for name in names(instance.port)}
    ports |= {*door(rig, OWNED).wants}
    files = {
        name for name in found.links if name.startswith(("rigwright-", PREFIX, "rigwright_gateway", "rigwright_router"))
    }
    loaded = {name for name, process in found.processes.items() if process.state != "inactive"}
    expect(
        sorted(files | loaded | found.sockets.keys()),
        sorted({*(i.unit for i in rig.instances), *ports}),
        DEPLOY,
    )


@check(
    "S11",
    "its limits of memory and tasks are in force",
    severity="high",
    why="one instance that grows without end takes the box with it",
)
def test_limits(host: Host, facts: HostFacts, instance: Instance) -> None:
    lines = host.check_output("systemctl show --property=MemoryMax --property=TasksMax %s", instance.unit).splitlines()
    found = dict(line.split("=", 1) for line in lines)
    wanted = memory(instance.memory_max, facts.memory_kib)
    said = int(found["MemoryMax"]) if found["MemoryMax"].isdecimal() else 0
    # systemd counts a part of pages, the kernel's own among them
    expect(f"{said} bytes", f"{wanted} bytes", DEPLOY, holds=abs(said - wanted) <= wanted // 50)
    expect(found["TasksMax"], str(instance.tasks_max), DEPLOY)


@check(
    "S12",
    "its process runs what its unit starts, as its own user, in a network of its own",
    severity="critical",
    why="a variable that somebody set for all services, or another program of that name, serves something else",
)
def test_process_is_the_declared_one(
    host: Host, rig: Rig, desired: Desired, instance: Instance, service: Service
) -> None:
    script = render("look/process.sh.j2", unit=instance.unit)
    told = channel.read(host.check_output("sh -c %s", script).splitlines(), PROCESS)
    folder = rig.installed(desired.installations[instance.installed_as].folder)
    # what systemd expands, it knows
    wanted = ["" if isinstance(word, Expanded) else str(word) for word in service.command]
    words = told.all("word")
    # of a script the kernel runs the distribution's interpreter, with what its first line names before the script
    before = words.index(wanted[0]) if told.one("exe").startswith("/usr/bin/") and wanted[0] in words[1:3] else 0
    words = words[before:]
    inside = bool(before) or told.one("exe").startswith(f"{folder}/")
    expect(told.one("exe"), f"a program in {folder}", DEPLOY, holds=inside)
    found = [word if want else "" for word, want in zip_longest(words, wanted, fillvalue="nothing")]
    expect(found, wanted, DEPLOY)
    variables = dict(variable.partition("=")[::2] for variable in told.all("variable"))
    given = environment(instance, service)
    expect({name: variables.get(name) for name in given}, given, DEPLOY)
    added = f"`systemctl unset-environment` them, or take them out of /etc/systemd/, and restart {instance.unit}"
    expect(strange(variables, instance, service), [], added)
    expect(set(told.all("user")), {rig.user(instance)}, "end those, and find out who started them")
    expect(told.one("host") in told.all("network"), False, DEPLOY)


@check(
    "S14",
    "it runs as it did when it was started so first",
    severity="high",
    why="after a driver's upgrade an engine may compute in another way, or have room for half the tokens, and only its "
    "log says so",
)
def test_runs_as_at_first(found: Served, instance: Instance) -> None:
    first = found.said_first.get(instance.unit, ())
    if not first:
        pytest.skip("it has said nothing of itself")
    now, then = instance.kind.begun(found.said.get(instance.unit, ())), instance.kind.begun(first)
    expect(now, then, f"look at `journalctl -u {instance.unit}` for what it says of backends", holds=now.like(then))


def memory(declared: str, host_kib: int) -> int:
    """An amount of memory as systemd reads it, in bytes.

    Args:
        declared: As in `rigwright.types.MemorySize`.
        host_kib: The host's, KiB.
    """
    if declared.endswith("%"):
        return host_kib * 1024 * int(declared[:-1]) // 100
    return int(declared[:-1]) << {"M": 20, "G": 30, "T": 40}[declared[-1]]
