"""A program that fails, is cut off or answers in its own words is no program that has nothing to tell."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checks.survey.host import base_system, boot_settings, cards, docker, kernel, systemd_properties
from cli.deploy_run import DeployOutput
from rigwright import apt_transactions
from rigwright.host import script_output
from rigwright.render import _environment
from tests.unit import short_programs
from tests.unit.channel_records import channel_lines
from tests.unit.rendered_scripts import write_stand_in

Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a program before the machine's own."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return lambda name, body: write_stand_in(tmp_path, name, body)


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        ("exit 0", []),
        ("echo 'a line 3: unsupported option' >&2; exit 255", ["a line 3: unsupported option"]),
        ("echo 'no user sshd' >&2; exit 255", ["no user sshd"]),
        ("exit 3", ["exit status 3"]),
        ("echo 'perl: warning: Setting locale failed.' >&2", []),
    ],
)
def test_an_sshd_that_would_not_start_is_reported(install: Install, body: str, reported: list[str]) -> None:
    install("sshd", body)
    assert boot_settings.sshd() == reported


@pytest.mark.parametrize(
    ("body", "audit"), [("exit 0", ""), ("echo x is half", "x is half"), ("echo x is half; exit 1", "x is half")]
)
def test_unfinished_packages_of_dpkg_are_reported(install: Install, body: str, audit: str) -> None:
    install("dpkg", body)
    assert base_system._read_audit() == audit


def test_a_dpkg_that_does_not_answer_is_no_host_in_order(install: Install) -> None:
    install("dpkg", "echo 'dpkg: error: parsing file' >&2; exit 2")
    with pytest.raises(RuntimeError, match="parsing file"):
        base_system._read_audit()


def test_a_silent_systemd_is_no_host_without_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_properties, "AT", str(tmp_path / "private"))
    with pytest.raises(RuntimeError):
        docker.running(str(tmp_path / "docker.sock"))


SHOWN = """Result=success
ExecStart={ path=/bin/sh ; argv[]=/bin/sh -c echo a

ActiveState=failed
 ; status=0/0 }
ExecStart={ path=/bin/true ; argv[]=/bin/true ; status=0/0 }
Id=ssh.service
Names=ssh.service sshd.service
ActiveState=active
"""


def test_commands_of_several_lines_and_names(install: Install) -> None:
    install("systemctl", f"cat <<'END'\n{SHOWN}END")
    found = systemd_properties.read_properties(["sshd.service"], ["Result", "ActiveState", "ExecStart"])
    assert (found["sshd.service"]["ActiveState"], found["sshd.service"]["ExecStart"].count("argv[]=")) == ("active", 2)
    with pytest.raises(RuntimeError, match=r"does not tell of x\.service"):
        systemd_properties.read_properties(["sshd.service", "x.service"], ["ExecStart"])
    with pytest.raises(RuntimeError, match="does not tell MainPID of ssh"):
        systemd_properties.read_properties(["ssh.service"], ["ExecStart", "MainPID"])


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("2", "the host's dpkg-query ended with status 2"),
        ("124", "the host's dpkg-query did not end in time"),
        ("cut", "the host's dpkg-query printed no whole line at its end"),
        ("libc6", "the host's dpkg-query does not print all of libc6"),
    ],
)
def test_a_program_that_fails_refuses_all_that_a_script_tells(how: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        script_output.parse_output(
            channel_lines(("package", "a"), ("unread", "dpkg-query", how)), {"package": (script_output.word,)}
        )


TELLS = """{% from 'channel.sh.j2' import told %}{% call told() %}
listing 0,1 reports
printf %s "$text" | while read -r line; do fact line "$line"; done
{% endcall %}"""


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("echo b", ""),
        ("echo b; exit 1", ""),
        ("exit 2", "status 2"),
        ("printf c", "no whole line"),
        ("kill -9 $$", "137"),
    ],
)
def test_a_listing_is_whole_or_refused_and_in_no_language(install: Install, body: str, refused: str) -> None:
    install("reports", f'echo "$LC_ALL"; {body}')
    script = _environment().from_string(TELLS).render()
    done = short_programs.run_program(["sh", "-c", script], env={**os.environ, "LC_ALL": "de_DE.UTF-8"})
    if refused:
        with pytest.raises(ValueError, match=refused):
            script_output.parse_output(done.stdout.splitlines(), {"line": (script_output.text,)})
    else:
        assert script_output.parse_output(done.stdout.splitlines(), {"line": (script_output.text,)}).all("line") == [
            "C",
            "b",
        ]


def test_the_end_of_a_programs_errors_is_one_bounded_line(install: Install) -> None:
    install("reports", r"printf 'first\nE: a=b \\c \033[2J\n%0500d\n' 7 >&2; echo b=c; exit 3")
    done = short_programs.run_program(["sh", "-c", _environment().from_string(TELLS).render()], env=dict(os.environ))
    with pytest.raises(
        ValueError, match=r"^the host's reports ended with status 3: E: a=b \\c \ufffd\[2J 0+$"
    ) as error:
        script_output.parse_output(done.stdout.splitlines(), {"line": (script_output.text,)})
    assert len(str(error.value)) < 500


def test_apt_has_longer_than_other_programs(install: Install) -> None:
    install("timeout", 'echo "$1"')
    for program, limit in (("apt-cache", 45), ("ss", 20)):
        script = _environment().from_string(TELLS.replace("reports", program)).render()
        told = script_output.parse_output(
            short_programs.run_program(["sh", "-c", script]).stdout.splitlines(), {"line": (script_output.text,)}
        )
        assert told.all("line") == [str(limit)]


@pytest.mark.parametrize(
    ("body", "reason"), [("exit 1", ""), ("echo no >&2; exit 2", "status 2: no"), ("kill -9 $$", "-9")]
)
def test_a_search_of_the_kernels_log_that_fails_is_no_silence(install, monkeypatch, body, reason):
    monkeypatch.setattr(cards.glob, "glob", lambda _: ["x.journal"])
    monkeypatch.setattr(cards, "ring", lambda *_: [])
    # the last message is asked for, too, and is there
    install("journalctl", f"""case "$*" in *' -g '*) {body} ;; *) echo '{{"MESSAGE": "x"}}' ;; esac""")
    assert reason in str(cards.log("NVRM")["blind"])
    assert bool(cards.log("NVRM")["blind"]) == bool(reason)


@pytest.mark.parametrize(
    ("counted", "complaints"),
    [
        ("1 upgraded, 1 newly installed, 1 reinstalled, 12 to remove and 3 not upgraded.", ()),
        (
            "1 upgraded, 1 newly installed, 2 downgraded, 12 to remove and 3 not upgraded.",
            (apt_transactions.INCOMPLETE,),
        ),
        (
            "1 upgraded, 1 newly installed, 1 reinstalled, 13 to remove and 3 not upgraded.",
            (apt_transactions.INCOMPLETE,),
        ),
        (
            "1 aktualisiert, 2 neu installiert, 12 zu entfernen und 3 nicht aktualisiert.",
            (apt_transactions.INCOMPLETE,),
        ),
    ],
)
def test_apts_count_is_held_against_what_it_lists(counted: str, complaints: tuple[str, ...]) -> None:
    lines = [counted, "Inst a [1] (2 X [amd64])", "Inst b (2 X [amd64])", "Inst c [1] (1 X [amd64])"]
    lines += [f"Remv d{number} [1]" for number in range(12)]
    assert apt_transactions.parse_simulation(lines, apt_transactions.AptSimulation).complaints == complaints


def test_a_host_whose_program_failed_is_named_with_that_alone(capsys: pytest.CaptureFixture[str]) -> None:
    shown = DeployOutput(["box"])
    for line in ("ValueError: the host's ss ended with status 2", "Error: could not process fact: Probe questions={}"):
        shown.emit(logging.LogRecord("pyinfra", logging.ERROR, "/x/pyinfra/api/util.py", 1, f"[box] {line}", (), None))
    assert shown.hosts["box"].errors == ["the host's ss ended with status 2"]
    assert "questions" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "versions"),
    [
        (r"printf 'filename: /a.ko\0filename: /b.ko\0version=1\0vermagic=6.1 SMP\0'; exit 1", ["", "1"]),
        (r"printf 'filename: /a.ko\0version=1\0vermagic=6.1 SMP\0filename: /b.ko\0'", ["1", ""]),
    ],
)
def test_a_module_that_kmod_cannot_read_hides_no_other(install: Install, body: str, versions: list[str]) -> None:
    install("modinfo", body)
    assert [one["version"] for one in kernel.modinfo("6.1", ("a", "b"))] == versions


def test_a_module_of_which_a_field_is_lost_is_refused(install: Install) -> None:
    install("modinfo", r"printf 'filename: /a.ko\0version=1\0'")
    with pytest.raises(RuntimeError, match="vermagic"):
        kernel.modinfo("6.1", ("a",))
