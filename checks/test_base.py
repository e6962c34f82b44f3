"""User, folders and packages."""

import shlex

from testinfra.host import Host

from checks import DEPLOY, check, expect
from checks.survey.accounts import ACCOUNTS
from checks.survey.taken import Survey
from rigwright.declaration.rig import Rig


@check(
    "B01",
    "each instance has a user that cannot log in",
    severity="high",
    why="a service account with a shell is a way in",
)
def test_users(survey: Survey, rig: Rig) -> None:
    accounts = survey.read(ACCOUNTS)
    for name in rig.users:
        user = accounts.user(name)
        expect(user.shell if user else f"no user {name}", "/usr/sbin/nologin", DEPLOY)
        members = [member for group in accounts.groups if group.name == name for member in group.members]
        expect(members, [], f"take them out of the group {name}: they can speak to the instance past its port")


@check(
    "B02",
    "only root can write where software and records lie",
    severity="critical",
    why="whoever can write there runs code as the service, or as root at the next deploy",
)
def test_roots_are_not_writable(host: Host, rig: Rig) -> None:
    roots = (rig.roots.software, rig.roots.state, rig.roots.config, rig.roots.models)
    folders = shlex.join(roots)
    # what lies in a folder that root alone may enter, such as a build's, nobody else gets at
    closed = "'(' -type d -user root -perm 0700 -prune ')'"
    script = f"find {folders} -xdev {closed} -o ! -type l '(' ! -user root -o -perm /022 ')' -print | head -n 3"
    loose = host.check_output(script)
    expect(loose.splitlines(), [], "chown it to root and take write permission from group and others")


@check("B03", "dpkg is not half done", severity="high", why="a half-configured package stops every later install")
def test_dpkg_is_consistent(host: Host) -> None:
    expect(host.check_output("dpkg --audit"), "", "run `dpkg --configure -a`")
