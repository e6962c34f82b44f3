"""User, folders and packages."""

import shlex

from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Rig


@check(
    "B01",
    "each instance has a user that cannot log in",
    severity="high",
    why="a service account with a shell is a way in",
)
def test_users(host: Host, rig: Rig) -> None:
    for user in rig.users:
        line = host.check_output("getent passwd %s || true", user)
        expect(line.split(":")[-1] or f"no user {user}", "/usr/sbin/nologin", DEPLOY)
        members = host.check_output("getent group %s || true", user).split(":")[-1]
        expect(members, "", f"take them out of the group {user}: they can speak to the instance past its port")


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
