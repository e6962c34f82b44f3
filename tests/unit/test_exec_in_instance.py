"""A shell in an instance is where its own process is, and takes nothing of it away when the shell ends."""

from cli.shell import instance_command, unit_properties
from rigwright.serving.instance_units import InstanceUnit, build_unit
from tests.unit import vllm_samples
from tests.unit.samples import sample_installation, sample_instance, sample_rig


def instance_unit(**changes: object) -> InstanceUnit:
    one = sample_instance(**changes)  # type: ignore[arg-type] # fields, and keys of a variant
    return build_unit(sample_rig(one), one, sample_installation())


def test_it_has_the_units_user_sandbox_key_and_limits() -> None:
    one = instance_unit()
    lines = one.text.partition("[Service]\n")[2].splitlines()
    told = list(unit_properties(one))
    for name in ("User", "Group", "PrivateNetwork", "SystemCallFilter", "LoadCredential", "MemoryMax", "ProtectSystem"):
        wanted = [line for line in lines if line.startswith(f"{name}=")]
        assert wanted
        assert [line for line in told if line.startswith(f"{name}=")] == wanted


def test_properties_that_end_with_a_unit_are_not_given_to_another() -> None:
    told = [line.partition("=")[0] for line in unit_properties(instance_unit())]
    assert {
        "RuntimeDirectory",
        "RemoveIPC",
        "ExecStart",
        "ExecStartPre",
        "ExecStopPost",
        "Slice",
        "Restart",
    }.isdisjoint(told)
    assert not any(line.startswith(("#", "[")) or not line.strip() for line in told)
    # of an instance that is stopped the socket's folder is not there
    (bound,) = [line for line in unit_properties(instance_unit()) if line.startswith("BindPaths=")]
    assert bound.startswith("BindPaths=-/run/")


def test_its_compiled_code_is_the_instances() -> None:
    one = vllm_samples.vllm_instance()
    box = vllm_samples.vllm_rig(one)
    told = list(unit_properties(build_unit(box, one, vllm_samples.vllm_environment(box))))
    assert any(line.startswith("CacheDirectory=") for line in told)
    assert any(line.startswith("BindPaths=/var/cache/") for line in told)
    assert "DeviceAllow=char-nvidia rw" in told


def test_the_words_stay_apart_and_the_program_is_found_by_the_units_path() -> None:
    one = instance_unit()
    box = sample_rig(sample_instance())
    words = instance_command(box.roots, one, ("python", "-c", "print('$HOME %n')"), "x.service", terminal=False)
    assert words[-5:] == ('exec "$$@"', "sh", "python", "-c", "print('$$HOME %n')")
    assert {"--unit=x.service", "--pipe", f"--property=EnvironmentFile=/etc/rigwright/current/env/{one.instance}"} <= {
        *words
    }
    assert instance_command(box.roots, one, (), "x.service", terminal=True)[-1] == "/bin/bash"
    assert "--pty" in instance_command(box.roots, one, (), "x.service", terminal=True)


def test_files_only_in_an_instances_own_view_are_there_too() -> None:
    """As its unit has it: in front of the program, for root's commands of the unit are to be without it."""
    one = vllm_samples.vllm_instance(environment={"LD_PRELOAD": "/opt/a b.so", "VLLM_LOGGING_LEVEL": "INFO"})
    box = vllm_samples.vllm_rig(one)
    found = build_unit(box, one, vllm_samples.vllm_environment(box))
    assert "ExecStart=/usr/bin/env 'LD_PRELOAD=/opt/a b.so' " in found.text.replace('"', "'")
    words = instance_command(box.roots, found, ("true",), "x.service", terminal=False)
    assert words[words.index("--") + 1 :] == (
        *("/usr/bin/env", "LD_PRELOAD=/opt/a b.so", "/bin/sh", "-c", 'exec "$$@"', "sh", "true"),
    )
    assert not any("LD_PRELOAD" in one for one in words[: words.index("--")])
