"""The services' users: each is nobody else, and nobody else is one of them."""

from collections import Counter

from checks import check, expect
from checks.survey.accounts import ACCOUNTS, NO_LOGIN, folder
from checks.survey.section import TRY
from checks.survey.taken import Survey
from checks.words import told
from rigwright.declaration.rig import Rig
from rigwright.gateway.given import GATEWAY_UNIT, ROUTER_UNIT
from rigwright.monitoring.service import unit_name

SYSTEM = range(1, 1000)  # useradd(8), --system: SYS_UID_MAX of login.defs
WRITABLE = 0o022


@check(
    "A01",
    "each service's user has a number of its own, and a group",
    severity="critical",
    why="the kernel knows numbers alone: who has the same one reads the service's memory and answers in its place",
)
def test_numbers(survey: Survey, rig: Rig) -> None:
    accounts = survey.read(ACCOUNTS)
    twins, groups, odd = [], [], []
    for name in rig.users:
        user = accounts.user(name)
        if user is None:
            continue  # B01
        same = [one.name for one in accounts.users if one.uid == user.uid]
        twins += [f"{one} with the number {user.uid} of {name}" for one in same if one != name]
        twins += [f"{name} twice" for _ in same if same.count(name) > 1][:1]
        others = [one.name for one in accounts.users if one.gid == user.gid and one.name not in (name, *same)]
        others += [one.name for one in accounts.groups if one.gid == user.gid and one.name != name]
        groups += [f"{one} with the group number {user.gid} of {name}" for one in others]
        if accounts.named(user.gid).split("/")[0] != name:
            odd.append(f"{name} in the group {accounts.named(user.gid)}")
        if user.uid not in SYSTEM:
            odd.append(f"{name} with the number {user.uid}")
    cure = "`userdel` who is none of ours (with --force: the number has processes)"
    expect(told(twins) or "none but them", "none but them", cure)
    cure = "`userdel` who is none of ours, `groupdel --force` what is, or give it another number"
    expect(told(groups) or "none but them", "none but them", cure)
    expect(
        told(odd) or "a system user in a group of its own",
        "a system user in a group of its own",
        "stop its unit, `userdel` it, and deploy again: it is made anew",
    )


@check(
    "A02",
    "it is in no group but its own, and nobody is in that",
    severity="critical",
    why="a group opens disks, cards, passwords or the other services' sockets, in either direction",
)
def test_groups(survey: Survey, rig: Rig) -> None:
    accounts = survey.read(ACCOUNTS)
    beside = [
        f"{one.name} in {accounts.named(gid)}"
        for one in accounts.ours
        if (user := accounts.user(one.name))
        for gid in one.groups
        if gid != user.gid
    ]
    expect(
        told(beside) or "its own group alone",
        "its own group alone",
        "`gpasswd --delete USER GROUP`, then `systemctl restart` its unit, which keeps the groups that it began with",
    )
    inside = [
        f"{member} in {one.name}"
        for one in accounts.ours
        for member in sorted(
            {*one.group_members, *one.group_admins}.union(
                *(group.members for group in accounts.groups if group.name == one.name)
            )
        )
    ]
    cure = "`gpasswd --delete USER GROUP`, and `gpasswd --administrators '' GROUP` for who runs it"
    expect(told(inside) or "nobody", "nobody", cure)


@check(
    "A03",
    "it and its group have no password",
    severity="critical",
    why="who knows it, or any of an empty one, becomes the service's user",
)
def test_passwords(survey: Survey, rig: Rig) -> None:
    accounts = survey.read(ACCOUNTS)
    words = [(one.name, one.password) for one in accounts.ours]
    words += [(f"group {one.name}", one.group_password) for one in accounts.ours]
    found = [f"{name}: {word}" for name, word in words if word != "none"]
    expect(told(found) or "none", "none", "`usermod --password '!' USER`, for a group `groupmod --password '!' GROUP`")


@check(
    "A04",
    "nothing lies where its home is said to be",
    severity="high",
    why="keys and start files in a home are what logs in, and what programs obey",
)
def test_home(survey: Survey, rig: Rig) -> None:
    accounts = survey.read(ACCOUNTS)
    homes = {user.home for name in rig.users if (user := accounts.user(name))}
    expect(
        f"something at {', '.join(sorted(homes))}" if accounts.home else "nothing",
        "nothing",
        f"look at what it is, then `rm -r {' '.join(sorted(homes))}`",
    )


@check(
    "A05",
    "the shell that refuses logins is the distribution's",
    severity="critical",
    why="with another program there, every account that cannot log in can",
)
def test_shell(survey: Survey, rig: Rig) -> None:
    shell = survey.read(ACCOUNTS).shell
    expect(
        shell.found or "no file of its own",
        " or ".join(shell.listed) or "what a package brings",
        f"`apt-get install --reinstall login`, which brings {NO_LOGIN}",
        holds=shell.found in shell.listed,
    )


@check(
    "A06",
    "no rule of the host's names it",
    severity="critical",
    why="by sudo, polkit and the like a service becomes root, or a local user the service",
)
def test_rules(survey: Survey, rig: Rig) -> None:
    found = sorted({str(one) for one in survey.read(ACCOUNTS).rules})
    expect(told(found) or "none", "none", "take the line out of that file, with `visudo -f FILE` where it is sudo's")


@check(
    "A07",
    "nothing but its unit starts something as it",
    severity="high",
    why="cron, at and user managers know no sandbox",
)
def test_spools(survey: Survey, rig: Rig) -> None:
    found = sorted(survey.read(ACCOUNTS).spools)
    cure = "take away what is named: `crontab -r -u USER`, `atrm`, `loginctl disable-linger USER`, or a file's line"
    expect(told(found) or "nothing", "nothing", cure)


@check(
    "A08",
    "no process has its number but those of its unit",
    severity="critical",
    why="who runs as the service's user reads its key, and answers for it",
)
def test_processes(survey: Survey, rig: Rig) -> None:
    # logrotate puts the gateway's log away as the gateway, for the folder is that user's
    units = {rig.user(one): {one.unit} for one in rig.instances}
    units |= {rig.gateway_user: {GATEWAY_UNIT, "logrotate.service"}, rig.router_user: {ROUTER_UNIT}}
    units |= {user: {unit_name(name)} for name, user in rig.watching.items()}
    # what another run of checks tries is over in a minute, and S24 minds it after that
    found = [
        f"{one.name} (pid {one.pid}) in {one.unit} as {one.user}"
        for one in survey.read(ACCOUNTS).processes
        if not units.get(one.user, set()) & set(one.unit.split("/")) and not one.unit.startswith(f"/system.slice/{TRY}")
    ]
    expect(told(sorted(found)) or "none", "none", "find out who has started it, and `kill` it")


@check(
    "A09",
    "its number is in nobody's range of subordinate ones",
    severity="high",
    why="whose range has it can be the service inside of a container",
)
def test_subordinate(survey: Survey, rig: Rig) -> None:
    found = sorted(map(str, survey.read(ACCOUNTS).subordinate))
    cure = "take the line out: `usermod --del-subuids FIRST-LAST USER`, or --del-subgids"
    expect(told(found) or "none", "none", cure)


@check(
    "A10",
    "only root can change who is who, and what root runs",
    severity="critical",
    why="who writes the lists of users is root with the next login",
)
def test_files(survey: Survey, rig: Rig) -> None:
    accounts = survey.read(ACCOUNTS)
    secret = ("/etc/shadow", "/etc/gshadow")
    found = [
        f"{one.path} {one.mode & 0o7777:o} of user {one.uid}"
        for one in accounts.files
        if one.uid != 0 or one.mode & WRITABLE or (one.path in secret and one.mode & 0o007)
    ]
    cure = "`chown root FILE`, and `chmod go-w FILE`; 640 for shadow and gshadow, 440 for sudoers"
    expect(told(found) or "root's files", "root's files", cure)


@check(
    "A11",
    "root alone has root's number",
    severity="critical",
    why="whoever has it is root, by another name and password",
)
def test_root(survey: Survey, rig: Rig) -> None:
    accounts = survey.read(ACCOUNTS)
    names = Counter(one.name for one in accounts.users if one.uid == 0)
    found = sorted(names.elements())
    expect(", ".join(found), "root", "`userdel` who is none of yours; with --force, for its number has processes")


@check(
    "A12",
    "what systemd has made for it is its own",
    severity="high",
    why="where its number has changed since, its socket is somebody else's, or it cannot start again",
)
def test_folders(survey: Survey, rig: Rig) -> None:
    accounts = survey.read(ACCOUNTS)
    there = {one.path: one for one in accounts.folders}
    found = []
    for instance in rig.instances:
        user = accounts.user(rig.user(instance))
        groups = {one.gid for one in accounts.groups if one.name in rig.socket_groups(instance)}
        one = there.get(folder(instance))
        if one and user and (one.uid != user.uid or one.gid not in groups):
            found.append(f"{one.path} of user {one.uid} and group {accounts.named(one.gid)}")
    cure = "give the user and its group their numbers back, or `systemctl restart` its unit"
    expect(told(found) or "each one's own", "each one's own", cure)
