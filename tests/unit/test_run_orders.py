"""The options of `pyinfra --data`: typed like the inventory's keys, and refused as they are, all mistakes at once."""

import subprocess
from collections.abc import Iterator

import pytest
from pyinfra_cli.util import parse_cli_arg

from rigwright.declaration.variant_selection import VariantSwitch
from rigwright.inventory import load_rig
from rigwright.problems import Invalid
from rigwright.run_options import RunOptions, parse_run_options
from rigwright.supply.bundle import format_digest
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.ssh_server import StandInSshd, run_sshd
from tests.unit.test_deploy import plan

DIGEST = "0123456789abcdef" * 4


def parse_data(words: str) -> dict[str, object]:
    """As pyinfra reads `--data` options."""
    return {key: parse_cli_arg(value) for key, _, value in (word.partition("=") for word in words.split())}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", RunOptions()),
        ("verb=deploy", RunOptions()),
        ("reboot=true", RunOptions(reboot=True)),
        ("reboot=False", RunOptions(reboot=False)),
        ("driver=false keep_weights=false", RunOptions()),
        ("verb=upgrade reboot=TRUE", RunOptions("upgrade", reboot=True)),
        ("verb=rollback", RunOptions("rollback")),
        ("verb=rollback to=3", RunOptions("rollback", to=3)),
        ("verb=rollback driver=true reboot=true", RunOptions("rollback", driver=True, reboot=True)),
        (
            "verb=rollback driver=true driver_version=580.178.04",
            RunOptions("rollback", driver=True, driver_version="580.178.04"),
        ),
        ("verb=rollback driver=false to=3", RunOptions("rollback", to=3)),
        ("verb=remove keep_weights=true", RunOptions("remove", keep_weights=True)),
        (f"expected_digest={DIGEST}", RunOptions(expected_digest=DIGEST)),
        (
            f"verb=upgrade expected_digest={format_digest(DIGEST).upper()}",
            RunOptions("upgrade", expected_digest=DIGEST),
        ),
        ("switch=chat:llamacpp/65k", RunOptions(switch=VariantSwitch("chat", "llamacpp/65k"))),
        # an instance may have a name that pyinfra would take for a number
        ("switch=1:e/2", RunOptions(switch=VariantSwitch("1", "e/2"))),
        ("switch=chat:llamacpp/65k:0,12", RunOptions(switch=VariantSwitch("chat", "llamacpp/65k", (0, 12)))),
        ("switch=chat:llamacpp/65k:", RunOptions(switch=VariantSwitch("chat", "llamacpp/65k", ()))),
        ("only=base", RunOptions(only=("base",))),
        ("only=weights,network", RunOptions(only=("base", "network", "tools", "weights"))),
        ("verb=upgrade only=nvidia_driver", RunOptions("upgrade", only=("base", "network", "nvidia_driver"))),
        # pyinfra's own, among them what its options --ssh-user and --ssh-password come to
        ("ssh_user=ops ssh_port=2222 ssh_key=~/key ssh_password=123 ssh_key_password=x _sudo=true", RunOptions()),
        ("ssh_hostname=192.0.2.7 ssh_strict_host_key_checking=no", RunOptions()),
    ],
)
def test_questions_of_the_script(words: str, expected: RunOptions) -> None:
    assert parse_run_options(parse_data(words)) == expected


KEYS = ("reboot", "to", "driver", "keep_weights", "verb")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("reboot=no", ["reboot: 'no' is refused: must be true or false"]),
        # options that do not go together are reported once each of them can be meant
        ("reboot=no to=3", ["reboot: 'no' is refused: must be true or false"]),
        ("reboot=deploi", ["reboot: 'deploi' is refused: must be true or false"]),
        ("reboot=yes", ["reboot: 'yes' is refused: must be true or false"]),
        ("reboot=1", ["reboot: 1 is refused: must be true or false"]),
        ("reboot=", ["reboot: '' is refused: must be true or false"]),
        ("verb=rollback driver=no", ["driver: 'no' is refused: must be true or false"]),
        ("verb=remove keep_weights=no", ["keep_weights: 'no' is refused: must be true or false"]),
        ("verb=rollback driver_version=580.178.04", ["driver_version: needs driver=true"]),
        (
            "verb=rollback driver=true driver_version=../580",
            ["driver_version: '../580' is refused: must be a driver's version, such as 580.178.04"],
        ),
        ("verb=rollback to=0", ["to: 0 is refused: must be a generation's number, 1 or more"]),
        ("verb=rollback to=1.5", ["to: "]),
        ("verb=rollback to=true", ["to: True is refused: must be a generation's number, 1 or more"]),
        ("verb=rollback to=last", ["to: 'last' is refused: must be a generation's number, 1 or more"]),
        (
            "verb=rolback",
            ["verb: 'rolback' is refused: must be deploy, upgrade, rollback or remove; did you mean \"rollback\"?"],
        ),
        ("verb=[]", ["verb: [] is refused: must be deploy, upgrade, rollback or remove"]),
        ("rebot=true", ['rebot: unknown key; did you mean "reboot"?']),
        ("keep-weights=true verb=remove", ['keep-weights: unknown key; did you mean "keep_weights"?']),
        ("ssh_prot=22", ['ssh_prot: unknown key; did you mean "ssh_port"?']),
        ("ssh_port=ssh", ["ssh_port: 'ssh' is refused: must be a whole number"]),
        ("_sudo=no", ["_sudo: 'no' is refused: must be True or False"]),
        ("_sudo_user=root", ['_sudo_user: unknown key; did you mean "ssh_user"?']),
        ("rig=x", ["rig: unknown key"]),
        ("to=3", ["to: needs verb=rollback, not verb=deploy"]),
        ("driver=true", ["driver: needs verb=rollback, not verb=deploy"]),
        ("verb=upgrade keep_weights=true", ["keep_weights: needs verb=remove, not verb=upgrade"]),
        ("verb=remove reboot=true", ["reboot: conflicts with verb=remove"]),
        ("verb=rollback reboot=true", ["reboot: needs driver=true: another generation needs no reboot"]),
        (
            f"expected_digest={DIGEST[1:]}",
            [f"expected_digest: {DIGEST[1:]!r} is refused: must be the 64 hexadecimal digits printed"],
        ),
        (
            f"expected_digest=x{DIGEST[1:]}",
            [f"expected_digest: 'x{DIGEST[1:]}' is refused: must be the 64 hexadecimal digits printed"],
        ),
        ("expected_digest=", ["expected_digest: '' is refused: must be the 64 hexadecimal digits printed"]),
        ("expected_digest=5", ["expected_digest: 5 is refused: must be the 64 hexadecimal digits printed"]),
        (
            f"verb=rollback expected_digest={DIGEST}",
            ["expected_digest: needs verb=deploy or upgrade, not verb=rollback"],
        ),
        (f"verb=remove expected_digest={DIGEST}", ["expected_digest: needs verb=deploy or upgrade, not verb=remove"]),
        ("verb=rollback driver=true to=3", ["to: is a generation number, and conflicts with driver=true"]),
        *(
            (f"switch={one}", [f"switch: {shown} is refused: must be INSTANCE:ENGINE/NAME, an instance and a variant"])
            for one, shown in (
                ("chat", "'chat'"),
                ("chat:llamacpp/65k:16", "'chat:llamacpp/65k:16'"),
                ("chat:llamacpp/65k:0,,1", "'chat:llamacpp/65k:0,,1'"),
                ("chat:llamacpp/65k:a", "'chat:llamacpp/65k:a'"),
                ("chat:65k", "'chat:65k'"),
                ("Chat:llamacpp/65k", "'Chat:llamacpp/65k'"),
                ("chat:llamacpp/65k;x", "'chat:llamacpp/65k;x'"),
                ("", "''"),
                ("true", "True"),
            )
        ),
        *(
            (f"only={one}", [f"only: {shown} is refused: must be roles, comma-separated: base, network"])
            for one, shown in (
                ("serving", "'serving'"),
                ("self_check", "'self_check'"),
                ("wieghts", "'wieghts'"),
                ("base,,tools", "'base,,tools'"),
                ("", "''"),
                ("true", "True"),
            )
        ),
        ("verb=remove only=base", ["only: needs verb=deploy or upgrade, and conflicts with switch"]),
        ("only=base switch=chat:e/n", ["only: needs verb=deploy or upgrade, and conflicts with switch"]),
        ("verb=upgrade only=base", ["only: must name nvidia_driver with verb=upgrade"]),
        ("verb=upgrade switch=chat:e/n", ["switch: needs verb=deploy, not verb=upgrade"]),
        (
            "verb=rolback reboot=no rebot=true",
            [
                "reboot: 'no' is refused: must be true or false",
                'rebot: unknown key; did you mean "reboot"?',
                "verb: 'rolback' is refused: must be deploy, upgrade, rollback or remove; did you mean \"rollback\"?",
            ],
        ),
    ],
)
def test_refusals(words: str, said: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        parse_run_options(parse_data(words))
    lines = str(refused.value).splitlines()
    assert len(lines) == len(said), lines
    assert ["did you mean" in line for line in lines] == ["did you mean" in start for start in said]
    assert all(line.startswith(f"--data: {start}") for line, start in zip(lines, said, strict=True)), lines


def test_a_value_that_may_be_a_secret_is_not_repeated() -> None:
    with pytest.raises(Invalid) as refused:
        parse_run_options(parse_data("hub_token=s3cret"))
    assert "s3cret" not in str(refused.value)


@pytest.fixture
def host(box: OperatorFolder) -> Iterator[StandInSshd]:
    with run_sshd(box.folder / "host") as made:
        keys = sample_entry(cards=[], instances=chat_instances(), **made.connection)
        box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {keys!r}}})\n")
        yield made


def test_it_is_refused_before_a_host_is_asked_anything(box: OperatorFolder, host: StandInSshd) -> None:
    run = plan(box.inventory, "--data", "reboot=no", "--data", "keep_wieghts=true")
    said = run.stdout + run.stderr
    assert run.returncode == 1, said
    assert "--data: reboot: 'no' is refused: must be true or false" in said
    assert '--data: keep_wieghts: unknown key; did you mean "keep_weights"?' in said
    assert "Traceback" not in said
    assert host.run_commands == []


def test_data_of_the_hosts_own_is_not_judged(box: OperatorFolder, host: StandInSshd) -> None:
    run: subprocess.CompletedProcess[str] = plan(box.inventory, "--ssh-user", "root", "--ssh-port", str(host.port))
    assert "--data:" not in run.stdout + run.stderr
    assert host.run_commands


def test_another_digest_than_was_expected_is_refused_before_a_host_is_asked_anything(
    box: OperatorFolder, host: StandInSshd
) -> None:
    run = plan(box.inventory, "--data", f"expected_digest={DIGEST}")
    said = run.stdout + run.stderr
    assert run.returncode == 1, said
    found = load_rig(box.load_group({"box": sample_entry(cards=[], instances=chat_instances())})[0][1]["rig"]).digest
    assert (
        f"box: lock and bundle have the digest {format_digest(found)}, but {format_digest(DIGEST)} is expected: "
        in said
    )
    assert "Traceback" not in said
    assert host.run_commands == []


def test_the_digest_that_was_expected_is_gone_on_with(box: OperatorFolder, host: StandInSshd) -> None:
    found = load_rig(box.load_group({"box": sample_entry(cards=[], instances=chat_instances())})[0][1]["rig"]).digest
    run = plan(box.inventory, "--data", f"expected_digest={format_digest(found)}")
    assert "is expected" not in run.stdout + run.stderr
    assert host.run_commands
