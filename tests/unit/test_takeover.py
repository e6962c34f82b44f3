"""Earlier services: their names, their limits, and the scripts that stop them and bring them back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.host.basic_facts import ListeningSocket
from rigwright.model.rig import Rig
from rigwright.serving.activation import Activation
from rigwright.serving.takeover import (
    ExistingContainer,
    ExistingService,
    ExistingServiceFacts,
    Takeover,
    describe_takeover,
    find_takeover_refusals,
    parse_existing_facts,
    parse_existing_service,
    parse_takeover_records,
    without_ports_of,
)
from tests.unit import samples
from tests.unit.channel_records import channel_lines
from tests.unit.host_folder import HostFolder
from tests.unit.host_states import CHAT, FAILS, SERVES, target_generation, two_instance_rig
from tests.unit.rendered_scripts import activation_script, write_stand_in
from tests.unit.samples import sample_facts, sample_instance

ID = "0" * 64
LOADED = ("vllm.service", "loaded", "active", "enabled")
UNIT = ExistingServiceFacts(ExistingService("vllm.service"), unit=LOADED, ports=frozenset({8020}))
ONE = ExistingContainer("docker", ID, "vllm", "running", "always", removed=False, unit="")
BOX = ExistingServiceFacts(ExistingService("vllm"), containers=(ONE,), ports=frozenset({8020}))


def rig(**changes: Any) -> Rig:
    return samples.sample_rig(sample_instance("chat", **changes))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vllm.service", ExistingService("vllm.service")),
        ("vllm@1.service", ExistingService("vllm@1.service")),
        ("vllm", ExistingService("vllm")),
        ("docker:vllm_1", ExistingService("vllm_1", "docker")),
    ],
)
def test_a_name_is_taken_whole(text: str, name: ExistingService) -> None:
    assert parse_existing_service(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "-x", "a b", "a;reboot", "$(id)", "x/../y", "a\n", "vllm.service\n", "runc:x", ".service", "x" * 300, 7),
        *("rigwright-chat.service", "rigwright_gateway.service", "rw-job-activate.service", "podman:rigwright-chat"),
    ],
)
def test_an_invalid_name_or_one_of_ours_is_refused(text: object) -> None:
    assert parse_existing_service(text) is None


REFUSED = {
    "no such unit": (replace(UNIT, unit=("vllm.service", "not-found", "inactive", "")), "there is no unit vllm"),
    "an alias": (replace(UNIT, unit=("other.service", *LOADED[1:])), "an alias of other.service: use that name"),
    "masked": (replace(UNIT, unit=("vllm.service", "masked", "active", "masked")), "is masked: Rigwright cannot"),
    "generated": (replace(UNIT, unit=(*LOADED[:3], "generated")), "is generated: Rigwright cannot disable"),
    "transient": (replace(UNIT, unit=(*LOADED[:3], "transient")), "is transient: Rigwright cannot disable"),
    "started by a socket": (replace(UNIT, triggers=("vllm.socket",)), "vllm.socket starts vllm.service: stop and"),
    "ours by its file": (replace(UNIT, ours=True), "vllm.service is Rigwright's own"),
    "at rest": (replace(UNIT, unit=("vllm.service", "loaded", "inactive", "enabled")), "does not run"),
    "elsewhere": (
        replace(UNIT, ports=frozenset()),
        "does not listen on any of the ports 8020: it blocks no deploy and does not stop",
    ),
    "no such container": (replace(BOX, containers=()), "neither Docker nor podman has a container vllm; name a unit"),
    "two": (replace(BOX, containers=(ONE, replace(ONE, program="podman"))), "name docker:vllm or podman:vllm"),
    "--rm": (replace(BOX, containers=(replace(ONE, removed=True),)), "disappears when it stops (--rm)"),
    "run by a unit": (replace(BOX, containers=(replace(ONE, unit="v.service"),)), "v.service runs vllm"),
    "fixed": (replace(BOX, fixed=True), "this docker cannot change the restart policy of vllm (always)"),
}


@pytest.mark.parametrize(("found", "said"), REFUSED.values(), ids=list(REFUSED))
def test_a_service_that_could_not_come_back_is_left_alone(found: ExistingServiceFacts, said: str) -> None:
    box_rig = rig()
    (reason,) = find_takeover_refusals(box_rig.instances, box_rig.gateway, "chat", found)
    assert said in reason


@pytest.mark.parametrize(
    "found",
    [
        *(UNIT, BOX, replace(BOX, fixed=True, containers=(replace(ONE, restart="no"),))),
        replace(UNIT, ports=frozenset(), client="docker"),
        # this run goes on with services that an earlier one has stopped
        replace(UNIT, recorded=True, unit=("vllm.service", "loaded", "inactive", "disabled"), ports=frozenset()),
    ],
)
def test_a_conflicting_service_is_taken_over(found: ExistingServiceFacts) -> None:
    box_rig = rig()
    assert find_takeover_refusals(box_rig.instances, box_rig.gateway, "chat", found) == []


def test_one_that_computes_on_another_card_is_not_in_the_way() -> None:
    made = rig(cards=(0,))
    there = replace(UNIT, ports=frozenset(), cards=frozenset({1}))
    assert "nor computes on a card of chat" in find_takeover_refusals(made.instances, made.gateway, "chat", there)[0]
    assert find_takeover_refusals(made.instances, made.gateway, "chat", replace(there, cards=frozenset({0}))) == []


def test_only_its_own_ports_count_as_free() -> None:
    others = (ListeningSocket(8020, "python3", "vllm.service"), ListeningSocket(8021, "x", "x.service"))
    assert [one.port for one in without_ports_of(sample_facts(listeners=others), UNIT).listeners] == [8021]


def test_its_takeover_is_reported_with_the_time_and_the_reason() -> None:
    made = rig()
    said = list(describe_takeover(made.gateway, made.instances[0], UNIT, 12.4))
    assert said[0].startswith("vllm.service uses port 8020: it stops, and chat replaces it")
    assert "have 30 s to end" in said[1]
    assert said[-1] == "downtime, from its stop to the first answer of chat: about 12 s"
    assert "restart policy no" in list(describe_takeover(made.gateway, made.instances[0], BOX, None))[2]


TOLD = (("named", "vllm.service"), ("recorded", "no"), ("unit", *LOADED), ("port", "8020"))


def test_output_of_a_host_is_typed() -> None:
    assert parse_existing_facts(channel_lines(*TOLD)) == UNIT
    row = ("container", "docker", ID, "vllm", "running", "always", "no", "")
    assert parse_existing_facts(channel_lines(("named", "vllm"), ("recorded", "no"), row, ("port", "8020"))) == BOX


@pytest.mark.parametrize(
    "odd",
    [
        ("unit", "a b", "loaded", "active", "enabled"),
        ("container", "runc", ID, "vllm", "running", "always", "no", ""),
        ("container", "docker", "0; reboot", "vllm", "running", "always", "no", ""),
        ("container", "docker", ID, "vllm", "running", "always; reboot", "no", ""),
        ("port", "x"),
    ],
)
def test_a_host_that_tells_something_else_is_not_believed(odd: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        parse_existing_facts(channel_lines(*TOLD[:2], odd))


def test_takeovers_are_reported_with_the_command_that_undoes_them() -> None:
    row = ("record", "vllm.service", "systemctl enable --now vllm.service")
    assert parse_takeover_records(channel_lines(row)) == [
        "vllm.service was taken over: `systemctl enable --now vllm.service` restores it"
    ]


class ExistingServiceHost(HostFolder):
    """One where an operator's unit runs and starts at boot, and a generation of ours is to come."""

    def prepare(self) -> None:
        """Write it all down."""
        self.write_generation(2, target_generation(two_instance_rig(sample_instance("chat"))))
        (self.config / "generations/2/proven").unlink(missing_ok=True)
        self.set_answers(state=SERVES)
        (self.root / "theirs").write_text("active")
        own = (self.root / "bin/systemctl").read_text().removeprefix("#!/bin/sh\n")
        before = f"""
case "$*" in
  "show --property=ActiveState --value vllm.service") cat {self.root}/theirs; exit ;;
  "stop vllm.service") echo inactive > {self.root}/theirs ;;
  "start vllm.service") echo active > {self.root}/theirs ;;
  "disable --quiet vllm.service") rm -f {self.links}/*.wants/vllm.service ;;
esac
"""
        write_stand_in(self.root / "bin", "systemctl", before + own)
        (self.links / "multi-user.target.wants").mkdir(parents=True)
        self.link.symlink_to("../vllm.service")

    @property
    def links(self) -> Path:
        return self.root / "links"

    @property
    def link(self) -> Path:
        return self.links / "multi-user.target.wants/vllm.service"

    @property
    def record(self) -> Path:
        return self.root / "state/theirs/vllm.service"

    def take(self, old: str = "", back: bool = False) -> tuple[int, str]:
        """Run an activation; the generation that is current before it is `old`."""
        if old:
            (self.config / "current").symlink_to(f"generations/{old}")
        taking = Takeover(UNIT, "" if back else CHAT)
        script = activation_script(Activation((), (CHAT,)), (), str(self.config), str(self.units), taking=taking)
        for place, folder in (("/etc/systemd/system", self.links), ("/var/lib/rigwright", self.root / "state")):
            script = script.replace(place, str(folder))
        done = self.run_script(script)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def host(tmp_path: Path) -> ExistingServiceHost:
    made = ExistingServiceHost(tmp_path)
    made.prepare()
    return made


def place(host: ExistingServiceHost, verb: str) -> int:
    return next(at for at, asked in enumerate(host.systemctl_commands) if asked.startswith(verb))


def test_it_is_stopped_for_good_before_ours_starts_and_written_down_before_that(host: ExistingServiceHost) -> None:
    status, said = host.take()
    assert status == 0, said
    assert place(host, "stop vllm.service") < place(host, "disable --quiet vllm.service") < place(host, "restart")
    assert host.record.read_text().splitlines() == [
        "before -",
        "state running",
        f"link {host.link} ../vllm.service",
        "back systemctl enable --now vllm.service",
    ]
    assert not host.link.is_symlink()


def test_ours_that_does_not_serve_goes_and_it_is_as_it_was(host: ExistingServiceHost) -> None:
    host.set_answers(**{f"state_{CHAT}": FAILS})
    status, said = host.take()
    assert status == 1
    assert "vllm.service is as it was found" in said
    assert "nothing of ours runs" in said
    assert str(host.link.readlink()) == "../vllm.service"
    assert (host.root / "theirs").read_text() == "active\n"
    assert not host.record.exists()
    assert not (host.config / "current").is_symlink()
    assert [path.name for path in host.units.glob("rigwright*")] == []
    assert (host.config / "generations/failed").is_dir()


def test_the_generation_that_was_there_stays_beside_it(host: ExistingServiceHost) -> None:
    host.write_generation(
        1, target_generation(two_instance_rig(sample_instance("chat"), sample_instance("code", port=8021)))
    )
    host.set_answers(**{f"state_{CHAT}": FAILS})
    status, said = host.take(old="1")
    assert (status, host.current) == (1, "generations/1"), said
    assert host.link.is_symlink()
    assert not host.record.exists()


def test_one_that_goes_on_keeps_what_was_written_down_first(host: ExistingServiceHost) -> None:
    host.record.parent.mkdir(parents=True)
    first = f"before -\nstate running\nlink {host.link} ../vllm.service\nback systemctl enable --now vllm.service\n"
    host.record.write_text(first)
    (host.root / "theirs").write_text("inactive")
    host.link.unlink()
    assert host.take()[0] == 0
    assert host.record.read_text() == first


def test_one_that_does_not_stop_is_left_running(host: ExistingServiceHost) -> None:
    host.set_answers(fails="stop vllm.service\n")
    status, said = host.take()
    assert status == 1
    assert "vllm.service could not be stopped for good" in said
    assert host.link.is_symlink()
    assert not any(asked.startswith("restart") for asked in host.systemctl_commands)


def test_it_comes_back_after_an_earlier_generation(host: ExistingServiceHost) -> None:
    host.record.parent.mkdir(parents=True)
    host.record.write_text(f"before 1\nstate running\nlink {host.link} ../vllm.service\nback x\n")
    host.link.unlink()
    status, said = host.take(back=True)
    assert status == 0, said
    assert place(host, "restart") < place(host, "start vllm.service")
    assert "disable --quiet vllm.service" not in host.systemctl_commands
    assert host.link.is_symlink()
    assert not host.record.exists()
