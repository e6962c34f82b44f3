"""A gateway's nginx as each release has it, locked in as its unit is, beside stand-ins of engines and the real router.

The cases are in tests/hosts/door; a host without any of our roles runs them, for all that they need is in one folder.
"""

import io
import json
import shutil
import subprocess
import tarfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from lab.hosts import LabHost
from rigwright.gateway import nginx_conf
from rigwright.gateway.certificate_authority import certificate_now, temporary_authority
from rigwright.gateway.request_rules import load_request_rules
from rigwright.model.fleet_schema import front_certificate_name, lender_certificate_name
from rigwright.project_root import ROOT
from rigwright.system_calls import filter_lines
from tests.hosts.conftest import BootHost
from tests.unit.request_bodies import passed_examples, refused_examples, refused_places

FOLDER = "/var/lib/door"
PORT = 18020
BOXES = ("b" * 48, "east", "west")
"""As tests/hosts/door/world.py has them: the longest name that one may have, and stand-ins."""
WORLDS = 4
"""Cases that run at the same time: nearly all of them wait for a limit of nginx's most of the time."""
LOCKED_IN = (
    *(
        "User=nobody",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "MemoryDenyWriteExecute=yes",
        "PrivateDevices=yes",
    ),
    *(
        "ProtectProc=invisible",
        "ProcSubset=pid",
        "ProtectSystem=strict",
        f"ReadWritePaths={FOLDER}",
        "LimitNOFILE=65536",
    ),
    *("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6", *filter_lines()),
    *("RestrictNamespaces=yes", "LockPersonality=yes", "PrivateUsers=yes"),
)
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1 "
    "-addext subjectAltName=IP:127.0.0.1 -keyout {0}/tls.key -out {0}/tls.crt"
)


def door(number: int = 0) -> nginx_conf.NginxSettings:
    folder, port = f"{FOLDER}/{number}", PORT + 10 * number
    return nginx_conf.NginxSettings(
        listeners=(
            nginx_conf.NginxListener("lan", (f"0.0.0.0:{port}",), keys=False),
            nginx_conf.NginxListener("keyed", (f"127.0.0.1:{port + 1}", f"[::1]:{port + 1}")),
            nginx_conf.NginxListener("tls", (f"127.0.0.1:{port + 2}",), keys=False, tls=True),
        ),
        folder=f"{folder}/conf",
        runtime=f"{folder}/run",
        router=f"{folder}/router",
        log=f"{folder}/log",
        scrapers=("127.0.0.0/8",),
        sticky_headers=("x-session-id",),
    )


def fleet_door(number: int) -> nginx_conf.NginxSettings:
    """The same with instances of other boxes, the first of which it is itself."""
    port = PORT + 10 * number
    return replace(
        door(number),
        boxes={box: f"127.0.0.1:{port + 3 + at}" for at, box in enumerate(BOXES)},
        fleet=nginx_conf.NginxFleetListener(f"127.0.0.1:{port + 3}", (front_certificate_name(BOXES[0]),)),
    )


def write_certificates(folder: Path) -> None:
    """Write those of the boxes, and of clients that are refused."""
    now = certificate_now()
    ours, other = temporary_authority(now), temporary_authority(now)
    front = front_certificate_name(BOXES[0])
    pairs = {
        "declared": ours.issue((front,), now, is_client=True),
        "expired": ours.issue((front,), now - timedelta(days=100), is_client=True),
        "stranger": ours.issue((front_certificate_name("other"),), now, is_client=True),
        "revoked": ours.issue((front,), now, is_client=True),
        "foreign": other.issue((front,), now, is_client=True),
        "lender": ours.issue((lender_certificate_name(BOXES[0]),), now),
        "revoked-lender": ours.issue((lender_certificate_name(BOXES[0]),), now),
        **{box: ours.issue((lender_certificate_name(box),), now) for box in BOXES[1:]},
    }
    revoked = [
        x509.load_pem_x509_certificate(pairs[one].certificates.encode()) for one in ("revoked", "revoked-lender")
    ]
    listed = ours.sign_revocations({one.serial_number: now for one in revoked}, now)
    for name, pair in pairs.items():
        (folder / f"{name}.crt").write_text(pair.certificates + ours.pem + listed)
        (folder / f"{name}.key").write_text(pair.key)


def rules() -> dict[str, list[dict[str, object]]]:
    """The cases' part of the rules for request fields."""
    refused, passed = (
        [{"rule": one.rule, "path": one.path, "members": one.members} for one in examples]
        for examples in ((*refused_examples(), *refused_places()), passed_examples())
    )
    return {"fields": [one.setting for one in load_request_rules()], "refused": refused, "passed": passed}


def cases_archive(folder: Path) -> bytes:
    """All that the cases need, as an archive."""
    ours = shutil.ignore_patterns("__pycache__")
    for number in range(WORLDS):
        world = folder / str(number)
        for name in ("conf", "run/tls"):
            (world / name).mkdir(parents=True)
        (world / "conf/nginx.conf").write_text(nginx_conf.render_nginx_conf(door(number), "# tried"))
        (world / "conf/fleet.conf").write_text(nginx_conf.render_nginx_conf(fleet_door(number), "# tried"))
        (world / "conf/wake.conf").write_text(
            nginx_conf.render_nginx_conf(replace(door(number), wakes=True), "# tried")
        )
        write_certificates(world / "run/tls")
        for name, text in nginx_conf.load_lua_modules().items():
            (world / "conf" / name).parent.mkdir(exist_ok=True)
            (world / "conf" / name).write_text(text)
        shutil.copytree(ROOT / "roles/gateway/host/router", world / "conf/router", ignore=ours)
        certificate = CERTIFICATE.format(world / "run/tls").split()
        made = subprocess.run(certificate, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
    shutil.copytree(ROOT / "tests/hosts/door", folder / "door", ignore=ours)
    (folder / "door/rules.json").write_text(json.dumps(rules()))
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        packed.add(folder, ".")
    return archive.getvalue()


def prepare(host: LabHost, folder: Path) -> None:
    packages = " ".join((*nginx_conf.PACKAGES, "python3"))
    host.run(
        "mkdir -p /etc/systemd/system; ln -s /dev/null /etc/systemd/system/nginx.service; apt-get -qq update; "
        f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install {packages}; mkdir {FOLDER}"
    )
    into = host.ssh_command(f"tar -x --no-same-owner -C {FOLDER} && chown -R nobody: {FOLDER}")
    subprocess.run(into, input=cases_archive(folder), check=True)


def tried(host: LabHost, folder: Path, *names: str) -> set[str]:
    """Run cases there, or all of them, each of which has to hold; returns which they were."""
    prepare(host, folder)
    limits = " ".join(f"-p '{one}'" for one in LOCKED_IN)
    said = host.run(
        f"systemd-run --quiet --wait --pipe {limits} --working-directory={FOLDER} "
        f"/usr/bin/python3 -B -m door {FOLDER} {PORT} {' '.join(names)}"
    )
    outcomes: dict[str, str] = json.loads(said.splitlines()[-1])
    wrong = {name: outcome for name, outcome in outcomes.items() if outcome}
    assert not wrong, "\n\n".join(f"{name}: {outcome}" for name, outcome in wrong.items())
    return set(outcomes)


def test_a_gateways_nginx_serves_counts_and_refuses(boot: BootHost, tmp_path: Path) -> None:
    assert len(tried(boot(), tmp_path)) > 30


# of what an nginx of another age could do otherwise: to read a request, to pass answers on, to ask the router
OLDER = (
    *("nothing_hostile_reaches_an_engine", "what_an_honest_client_may_say_is_taken_once"),
    *("requests_one_behind_another_are_answered_in_turn", "words_come_as_they_are_said", "tls_is_of_this_time"),
    *("a_body_is_passed_on_to_the_byte", "an_engine_that_dies_ends_its_streams_alone", "a_reload_loses_no_stream"),
    *("a_request_that_ends_an_engine_reaches_no_other", "a_socket_that_nobody_listens_on_costs_no_request"),
    *("a_listener_with_keys_wants_one", "a_key_has_its_streams_and_no_more", "nobody_names_himself"),
    *("one_that_leaves_gets_nothing_new_and_goes_on_with_what_it_has", "the_log_says_what_the_answer_says"),
    *("metrics_are_for_those_who_are_declared", "nobody_gets_a_tunnel", "no_lua_is_compiled_as_it_runs"),
    *("slow_bodies_take_nothing_and_end", "broken_chunks_end_no_process", "refusals_write_no_line_each_to_the_journal"),
    *("anthropics_clients_are_answered_with_a_key_in_either_header", "errors_of_engines_get_its_shape"),
    *("refusals_have_its_shape", "tokens_are_counted_by_key_and_outlive_nginx", "a_key_has_its_tokens_and_no_more"),
    *("a_stream_gets_comments_until_its_model_is_there_and_then_the_answer", "a_client_that_goes_withdraws"),
    *("lines_that_are_none_end_the_waiting_and_reach_no_client", "a_reload_keeps_those_that_wait"),
    *("a_key_has_its_own_right_to_wake_and_to_have_others_stopped", "health_names_instances_that_do_not_sleep"),
    "an_answer_that_breaks_off_is_not_taken_for_a_whole_one",
)


@pytest.mark.all_only
@pytest.mark.parametrize("release", ["debian-12"], indirect=True)
def test_the_older_releases_nginx_does_one_of_each_kind(boot: BootHost, tmp_path: Path) -> None:
    assert tried(boot(), tmp_path, *OLDER) == set(OLDER)
