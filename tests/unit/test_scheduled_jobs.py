"""What a host starts by the clock or at a boot, and what its loader puts into programs, as the survey finds it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from checks.survey.base_system import managed_words_pattern
from checks.survey.host import (
    base_system,
    boot_settings,
    dpkg,
    dynamic_loader,
    next_boot_config,
    privilege_escalation,
    program_paths,
    root_started_programs,
    scheduled_jobs,
    sshd,
)
from rigwright.model.rig import account_names
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_instance, sample_rig

Write = Callable[..., Path]
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file of a host."""

    def made(name: str, text: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    for module in (dynamic_loader, dpkg, boot_settings, root_started_programs, sshd):
        monkeypatch.setattr(module, "ROOT", str(tmp_path))
    for name in ("ETC", "RUN", "USR", "SYS"):
        monkeypatch.setattr(scheduled_jobs, name, tmp_path / name.lower())
        monkeypatch.setattr(privilege_escalation, name, tmp_path / name.lower(), raising=False)
    monkeypatch.setattr(privilege_escalation, "VAR", tmp_path / "var/lib")
    made("etc/machine-id", f"{'0a' * 16}\n")
    monkeypatch.setattr(program_paths, "HELD", (f"{tmp_path}/usr/bin", f"{tmp_path}/none"))
    monkeypatch.setattr(program_paths, "BELOW", ())
    monkeypatch.setattr(scheduled_jobs, "TIMED", (tmp_path / "etc/cron.d", tmp_path / "etc/rc.local"))
    monkeypatch.setattr(scheduled_jobs, "JOBS", (tmp_path / "etc/cron.d", tmp_path / "etc/udev/rules.d"))
    made("var/lib/dpkg/info/libssl3.list", f"/{LIBRARIES}/libssl.so.3\n/{LIBRARIES}/glibc-hwcaps/x86-64-v3/liba.so.1\n")
    for name in ("libssl.so.3", "glibc-hwcaps/x86-64-v3/liba.so.1"):
        made(f"{LIBRARIES}/{name}")
    made("sbin/none")
    write_stand_in(tmp_path / "sbin", "ldconfig", "echo '0 libs found in cache'")
    made("var/lib/dpkg/status", "Package: none\nStatus: install ok installed\n")
    return made


def test_a_sound_loader_has_nothing_before_the_systems(write: Write) -> None:
    write("opt/cuda/libcudart.so.12")
    write("etc/ld.so.conf", "include ld.so.conf.d/*.conf\n")
    write("etc/ld.so.conf.d/a.conf", f"/opt/cuda # more\n/{LIBRARIES}\n")
    write("etc/ssl/openssl.cnf", f"[p]\nmodule = /{LIBRARIES}/libssl.so.3\n")
    write("etc/nsswitch.conf", "passwd: files systemd [NOTFOUND=return]\n")
    write("etc/environment", "PATH=/bin\nLD_LIBRARY_PATH=/opt/cuda\n")
    assert dynamic_loader.look({}) == {"before": [], "put": []}


def test_what_the_loader_finds_first_is_told(write: Write, tmp_path: Path) -> None:
    for folder in ("opt/a", "opt/b", "opt/c", f"{LIBRARIES}/glibc-hwcaps/x86-64-v2"):
        write(f"{folder}/libssl.so.3")
    write("etc/ld.so.conf", "/opt/a\ninclude /etc/more/*\n")
    write("etc/more/x", "/opt/b\n")
    cache = (
        f"\\tlibssl.so.3 (libc6,x86-64) => /opt/c/libssl.so.3\\n\\tlibssl.so.3 (libc6) => /{LIBRARIES}/libssl.so.3\\n"
    )
    write_stand_in(tmp_path / "sbin", "ldconfig", f"printf '2 libs found in cache\\n{cache}'")
    found = dynamic_loader.look({})["before"]
    assert found == [
        ["/opt/a", "/etc/ld.so.conf", "libssl.so.3"],
        ["/opt/b", "/etc/more/x", "libssl.so.3"],
        [f"/{LIBRARIES}/glibc-hwcaps/x86-64-v2", "glibc-hwcaps", "libssl.so.3"],
        ["/opt/c", "/etc/ld.so.cache", "libssl.so.3"],
    ]


def test_what_settings_load_into_programs_is_told(write: Write) -> None:
    write("etc/ssl/openssl.cnf", ".include /etc/ssl/more\n[p]\n# module = /opt/no.so\n")
    write("etc/ssl/more", "dynamic_path = /opt/evil.so\n")
    write("etc/nsswitch.conf", "passwd: files evil  # x\n")
    write(f"{LIBRARIES}/libnss_evil.so.2")
    write("etc/environment", "export LD_PRELOAD=/opt/x.so\n")
    assert dynamic_loader.look({}) == {
        "before": [["/opt", "/etc/ssl/more", "evil.so"], [f"/{LIBRARIES}", "/etc/nsswitch.conf", "libnss_evil.so.2"]],
        "put": ["/etc/environment: export LD_PRELOAD=/opt/x.so"],
    }


def found_jobs() -> list[str]:
    box = sample_rig(sample_instance())
    return [
        one["text"]
        for one in base_system._jobs(
            re.compile(managed_words_pattern(box.roots, account_names(box))), box.roots.software, [], []
        )
    ]


def test_what_a_job_starts_is_looked_into(write: Write, tmp_path: Path) -> None:
    night = write("night", "#!/bin/sh\n# systemctl stop rigwright.target\nsystemctl stop rigwright.target\n")
    write("data", "systemctl stop rigwright.target\n")
    # a shell obeys what can be run and is no program
    bare = write("bare", "U=rigwright-chat\nsystemctl stop $U\n")
    bare.chmod(0o755)
    write("program", "\x7fELF\0\nsystemctl stop rigwright.target\n").chmod(0o755)
    write("etc/cron.d/x", f"0 3 * * * root test -x /bin/sh && {night} {tmp_path}/data; {bare}; {tmp_path}/program\n")
    write("etc/udev/rules.d/9.rules", 'ACTION=="add", RUN+="/usr/bin/systemctl restart rigwright-chat.service"\n')
    assert found_jobs() == [
        'ACTION=="add", RUN+="/usr/bin/systemctl restart rigwright-chat.service"',
        "systemctl stop rigwright-chat",
        "systemctl stop rigwright.target",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "*/5 * * * * root systemctl is-active rigwright-chat >> /var/log/states",
        "0 1 * * * root journalctl -u rigwright-chat > /root/log",
    ],
)
def test_a_job_that_only_looks_changes_nothing(write: Write, line: str) -> None:
    write("etc/cron.d/x", f"{line}\n")
    assert found_jobs() == []


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("0 3 * * * root /sbin/poweroff", True),
        ("0 3 * * * root systemctl --force suspend", True),
        ("0 3 * * * root shutdown -h now", True),
        ("0 3 * * * root shutdown +5 'bye'", True),
        ("0 3 * * * root /sbin/shutdown -r now", False),
        ("0 3 * * * root shutdown --reboot", False),
        ("0 3 * * * root /sbin/reboot", False),
        ("0 3 * * * root systemctl restart halting", False),
        ("# poweroff", False),
    ],
)
def test_jobs_that_end_the_box_are_told_from_those_that_do_not(write: Write, line: str, ends: bool) -> None:
    write("etc/cron.d/x", f"{line}\n")
    assert bool([*scheduled_jobs.ends()]) == ends


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("etc/systemd/logind.conf.d/x.conf", "[Login]\nIdleAction=poweroff\n", "IdleAction=poweroff"),
        ("etc/systemd/logind.conf.d/x.conf", "[Login]\nIdleAction=lock\n", ""),
        ("run/nextroot/etc/os-release", "", "the next reboot is into that (systemd-soft-reboot.service(8))"),
        ("sys/kernel/kexec_loaded", "1\n", "the next reboot may be into the kernel that is loaded"),
        ("sys/kernel/kexec_loaded", "0\n", ""),
    ],
)
def test_what_ends_it_without_a_job_is_told(write: Write, name: str, text: str, said: str) -> None:
    write(name, text)
    assert [one["text"] for one in scheduled_jobs.ends()] == ([said] if said else [])


@pytest.mark.parametrize("owner", ["packages", "nobodys"])
def test_what_a_packages_own_unit_does_at_the_end_of_a_boot_is_no_news(
    write: Write, tmp_path: Path, owner: str
) -> None:
    # as snapd has it, which Ubuntu enables
    text = "[Service]\nExecStart=/bin/cp /usr/lib/snapd/system-shutdown /run/initramfs/shutdown\n"
    unit = write("usr/lib/systemd/system/helper.service", text)
    wants = tmp_path / "etc/systemd/system/final.target.wants"
    wants.mkdir(parents=True)
    (wants / unit.name).symlink_to(unit)
    if owner == "packages":
        # a list may have the other name of what lies below /usr
        write("var/lib/dpkg/info/helper.list", f"/lib/systemd/system/{unit.name}\n")
    assert len([*scheduled_jobs.ends()]) == (owner == "nobodys")


@pytest.mark.parametrize(
    ("name", "text", "open_"),
    [
        ("pam.d/su", "auth sufficient pam_permit.so\n", True),
        ("pam.d/su", "-auth [user_unknown=ignore success=done default=bad] /lib/security/pam_permit.so\n", True),
        (
            "pam.d/common-auth",
            "auth [success=1 default=ignore] pam_unix.so\nauth requisite pam_deny.so\nauth\trequired\tpam_permit.so\n",
            False,
        ),
        ("pam.d/su", "# auth sufficient pam_permit.so\naccount sufficient pam_permit.so\n", False),
        ("polkit-1/rules.d/0.rules", "polkit.addRule(function(a, s) { return polkit.Result.YES; });\n", True),
        (
            "polkit-1/rules.d/0.rules",
            "polkit.addRule(function(a, subject) {\n if (subject.isInGroup('adm')) return polkit.Result.YES;\n});\n",
            False,
        ),
    ],
)
def test_rules_that_ask_nobody_are_told(write: Write, name: str, text: str, open_: bool) -> None:
    write(f"etc/{name}", text)
    assert bool(privilege_escalation.look({})["open"]) == open_


def test_programs_that_run_as_root_and_are_nobodys_are_told(write: Write, tmp_path: Path) -> None:
    write("usr/bin/plain").chmod(0o755)
    shell = write("usr/bin/shell")
    shell.chmod(0o4755)
    if shell.stat().st_uid == 0:
        assert privilege_escalation.look({})["programs"] == [{"file": f"{tmp_path}/usr/bin/shell", "text": "mode 4755"}]
    # a package's own is its package's to answer for
    write("var/lib/dpkg/info/x.list", f"{tmp_path}/usr/bin/shell\n")
    assert privilege_escalation.look({})["programs"] == []


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("net.ipv4.conf.all.route_localnet=1", True),
        ("net/ipv4/conf/eth0/route_localnet = 1", True),
        ("net.ipv4.conf.all.route_localnet=0", False),
        ("kernel.threads-max=200", True),
        ("kernel.threads-max=63000", False),
        ("kernel.core_pattern=|/opt/evil %p", True),
        ("kernel.core_pattern=|/usr/lib/x86_64-linux-gnu/libssl.so.3 %p", False),
        ("kernel.core_pattern=core", False),
        ("-kernel.modprobe = /tmp/x", True),
        ("# kernel.modprobe = /tmp/x", False),
    ],
)
def test_settings_of_the_kernel_that_open_or_starve_are_told(write: Write, line: str, seen: bool) -> None:
    write("etc/sysctl.d/x.conf", f"{line}\n")
    assert bool(next_boot_config.risky()) == seen


def test_an_alternative_of_nobodys_stands_before_the_systems(write: Write, tmp_path: Path) -> None:
    write("opt/awk")
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    for name, end in (("awk", "opt/awk"), ("java", "opt/awk"), ("nft", f"{LIBRARIES}/libssl.so.3")):
        (tmp_path / f"etc/alternatives/{name}").symlink_to(tmp_path / end)
    assert boot_settings.shadows() == [["/etc/alternatives/awk", "/usr/bin/awk"]]
