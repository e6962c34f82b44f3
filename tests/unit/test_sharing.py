"""Sharing weights: the allowed clients, as nginx and systemd have them, and the remaining steps on a host."""

import hashlib
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.host.service_states import NO_SERVICE, ServiceState
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.roots import Roots
from rigwright.nginx_package import PROOF
from rigwright.plan import host_probe as host_probe
from rigwright.render import render
from rigwright.serving.instance_units import OWNED_HEADER
from rigwright.weights.weight_server import (
    OWNED,
    SHARE_UNIT,
    allowed_networks,
    config_path,
    listener_filter,
    parse_sharing_state,
    render_share_config,
    render_share_unit,
    share_digest,
    share_endpoint,
    share_release_values,
    share_state_values,
)
from roles.weights.host.spec import FetchSpec
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_rig

SHARE = ShareEntry(address="10.0.0.5", allow=("10.0.0.0/24", "192.168.7.0/24"))
SIXTH = ShareEntry(address="fd00::5", port=9000, allow=("fd00::/64",))
RIG = sample_rig()


def values(text: str, key: str) -> list[str]:
    """The values of a directive of nginx's, or a key of a unit, in order."""
    lines = [line.strip() for line in text.splitlines()]
    return [line[len(key) :].lstrip(" =").rstrip(";") for line in lines if line.startswith((f"{key} ", f"{key}="))]


@pytest.mark.parametrize(
    ("share", "where", "who", "family"),
    [
        (SHARE, "10.0.0.5:8090", ["10.0.0.0/24", "192.168.7.0/24", "10.0.0.5/32"], "AF_INET"),
        (SIXTH, "[fd00::5]:9000", ["fd00::/64", "fd00::5/128"], "AF_INET6"),
        (ShareEntry(address="10.0.0.5", allow=("10.0.0.5/32",)), "10.0.0.5:8090", ["10.0.0.5/32"] * 2, "AF_INET"),
    ],
    ids=["networks", "sixth version", "itself alone"],
)
def test_only_declared_networks_and_the_box_itself_get_in_and_at_one_address(
    share: ShareEntry, where: str, who: list[str], family: str
) -> None:
    nginx, service = render_share_config(RIG.roots, share), render_share_unit(RIG.roots, share)
    assert (share_endpoint(share), listener_filter(share)) == (where, f"src {where}")
    assert values(nginx, "listen") == [where]
    assert list(allowed_networks(share)) == values(nginx, "allow") == who
    # the first that fits counts
    lines = [line.strip() for line in nginx.splitlines()]
    assert lines[max(at for at, line in enumerate(lines) if line.startswith("allow ")) + 1] == "deny all;"
    assert values(service, "IPAddressAllow") == [" ".join(who)]
    assert values(service, "IPAddressDeny") == values(service, "SocketBindDeny") == ["any"]
    assert values(service, "SocketBindAllow") == [f"tcp:{share.port}"]
    assert values(service, "RestrictAddressFamilies") == [family]


def test_it_gives_the_folder_of_models_and_writes_only_there_if_asked() -> None:
    made = sample_rig(roots=Roots(models="/data/models", config="/etc/box"))
    nginx, service = render_share_config(made.roots, SHARE), render_share_unit(made.roots, SHARE)
    assert values(nginx, "root") == ["/data/models"]
    assert values(service, "RequiresMountsFor") == ["/data/models"]
    assert values(service, "ExecStart") == ["/usr/sbin/nginx -p /run/rigwright_share/ -c /etc/box/share.conf"]
    # each kind of temporary file has a default where the program was compiled to
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    own = [path for kind in kinds for path in values(nginx, f"{kind}_temp_path")] + values(nginx, "pid")
    assert len(own) == len(kinds) + 1
    assert not [path for path in own if "/" in path]
    assert (values(nginx, "error_log"), values(nginx, "access_log")) == (["stderr crit"], ["off"])


def test_its_files_are_not_taken_for_an_instances() -> None:
    assert OWNED != OWNED_HEADER
    assert [
        text.splitlines()[0] for text in (render_share_config(RIG.roots, SHARE), render_share_unit(RIG.roots, SHARE))
    ] == [OWNED] * 2


def test_its_start_digest_changes_with_each_text() -> None:
    texts = render_share_unit(RIG.roots, SHARE) + render_share_config(RIG.roots, SHARE)
    assert share_digest(RIG.roots, SHARE) == hashlib.sha256(texts.encode()).hexdigest()
    others = [SIXTH, SHARE.model_copy(update={"allow": ("10.0.0.0/25",)}), SHARE.model_copy(update={"port": 8091})]
    assert len({share_digest(RIG.roots, share) for share in (SHARE, *others)}) == len(others) + 1


def test_a_process_writes_down_the_digest_of_what_lies_on_disk(tmp_path: Path) -> None:
    texts = {"unit": render_share_unit(RIG.roots, SHARE), "share.conf": render_share_config(RIG.roots, SHARE)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (line,) = values(texts["unit"], "ExecStartPre")
    script = line.partition("sh -c ")[2].strip("'").replace("$$", "$")
    for path, there in {
        "/run/rigwright/rigwright_share.service": "run/record",
        "/etc/systemd/system/rigwright_share.service": "unit",
        "/etc/rigwright/share.conf": "share.conf",
        "/run/rigwright;": "run;",
    }.items():
        assert path in script
        script = script.replace(path, str(tmp_path / there))
    for reload_needed, written in (("no", f"{share_digest(RIG.roots, SHARE)}\n"), ("yes", None)):
        write_stand_in(tmp_path / "bin", "systemctl", f"echo {reload_needed}")
        path = f"{tmp_path}/bin:/usr/bin:/bin"
        assert short_programs.run_program(["sh", "-c", script], env={"PATH": path}).returncode == 0
        record = tmp_path / "run/record"
        assert (record.read_text() if record.exists() else None) == written


WANTED = share_digest(RIG.roots, SHARE)
SETTLED = ServiceState("active", "enabled", WANTED)


@pytest.mark.parametrize(
    ("now", "runs", "settled"),
    [
        (SETTLED, True, True),
        (NO_SERVICE, False, False),
        (replace(SETTLED, started_from=""), False, False),
        (replace(SETTLED, active="activating"), False, False),
        (replace(SETTLED, replaced=True), False, False),
        (replace(SETTLED, enabled="disabled"), True, False),
        (replace(SETTLED, reload_needed=True), True, False),
    ],
    ids=["settled", "nothing", "not known", "restarting", "upgraded", "disabled", "unread"],
)
def test_it_is_restarted_only_where_its_process_is_another(now: ServiceState, runs: bool, settled: bool) -> None:
    assert (now.is_running(WANTED), now.is_settled(WANTED)) == (runs, settled)


SYSTEMCTL = """case $* in
  show*) printf 'MainPID=%s\nActiveState=%s\nNeedDaemonReload=no\n' "$PID" "$ACTIVE" ;;
  is-enabled*) echo enabled ;;
esac"""


def test_the_state_is_read_from_systemd_and_the_record(tmp_path: Path) -> None:
    write_stand_in(tmp_path / "bin", "systemctl", SYSTEMCTL)
    place = {**share_state_values(), "share_path": tmp_path / "unit", "started_from": tmp_path}

    def look(pid: str, active: str) -> ServiceState | None:
        environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "PID": pid, "ACTIVE": active}
        script = render("look/sharing.sh.j2", **place)
        said = short_programs.run_program(["sh", "-c", script], env=environment)
        return parse_sharing_state(said.stdout.splitlines())

    assert look("0", "inactive") is None
    (tmp_path / "unit").touch()
    (tmp_path / SHARE_UNIT).write_text(f"{WANTED}\n")
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "60"]) as process:
        assert look(str(process.pid), "active") == SETTLED
        program.unlink()
        assert look(str(process.pid), "active") == replace(SETTLED, replaced=True)
        process.kill()


def test_nginx_itself_tries_settings_as_user_nobody_before_they_count(tmp_path: Path) -> None:
    words = PROOF.replace("/usr/sbin/nginx", str(tmp_path / "nginx"))
    for name, body in {"chown": ":", "setpriv": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"'}.items():
        write_stand_in(tmp_path / "bin", name, body)
    write_stand_in(tmp_path, "nginx", f'echo "$@" > {tmp_path}/asked; exit ${{STATUS}}')
    (tmp_path / "tmp").mkdir()
    for status in (0, 1):
        environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "TMPDIR": f"{tmp_path}/tmp", "STATUS": str(status)}
        done = short_programs.run_program(["sh", "-c", f"{words} '/etc/a b.new'"], env=environment)
        assert done.returncode == status
        asked = (tmp_path / "asked").read_text().split()
        assert asked[:3] == ["-t", "-q", "-p"]
        assert asked[-3:] == ["-c", "/etc/a", "b.new"]
        assert list((tmp_path / "tmp").iterdir()) == []


def test_only_a_sharing_rig_needs_nginx() -> None:
    sharing = sample_rig(share=SHARE)
    assert set(host_probe.required_packages(sharing)) - set(host_probe.required_packages(RIG)) == {"nginx"}
    assert host_probe.probe_values(sharing)["packages"] == list(host_probe.required_packages(sharing))


def test_released_files_are_those_that_were_made() -> None:
    script = render("sharing/release.sh.j2", **share_release_values(RIG.roots))
    assert config_path(RIG.roots) in script
    assert "systemctl stop rigwright_share.service" in script


def test_twenty_boxes_find_room() -> None:
    """The one that is refused goes to the hub, and the uplink carries the model twice."""
    each = FetchSpec.parallel + 1  # progress is looked at, too
    text = render_share_config(RIG.roots, SHARE)
    one, together = (int(re.findall(rf"limit_conn {zone} (\d+);", text)[0]) for zone in ("one", "all"))
    assert one >= each
    assert together >= 20 * each
