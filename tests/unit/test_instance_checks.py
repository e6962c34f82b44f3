"""What is looked at of an instance's process, and of what its engine has compiled."""

from pathlib import Path

from rigwright.engines import kind_of
from rigwright.render import render
from rigwright.serving.instance_units import find_foreign_variables
from tests.unit import short_programs
from tests.unit.samples import sample_installation, sample_instance, sample_rig


def test_a_process_has_no_variables_but_its_units_and_systemds() -> None:
    one = sample_instance()
    service = kind_of(one).service(sample_rig(one), one, sample_installation())
    systemds = {"LANG", "LC_ALL", "USER", "INVOCATION_ID", "CREDENTIALS_DIRECTORY", "https_proxy"}
    known = {"RW_DIGEST", "CUDA_VISIBLE_DEVICES", *service.environment, *systemds}
    assert find_foreign_variables(known, one, service) == []
    added = {"LLAMA_ARG_CTX_SIZE", "VLLM_PLUGINS", "LD_PRELOAD", "CACHE_DIRECTORY_2", "LC_"}
    assert find_foreign_variables(known | added, one, service) == sorted(added)


def test_what_is_compiled_tells_whose_it_is(tmp_path: Path) -> None:
    own = tmp_path / "chat" / "an env"
    own.mkdir(parents=True)
    (own / "a\n b").touch()
    for folder, mode in ((tmp_path, 0o755), (own.parent, 0o755), (own, 0o700)):
        folder.chmod(mode)

    def report_of(user: str) -> list[str]:
        parents = [str(tmp_path), str(own.parent)]
        script = render("look/compiled.sh.j2", own=str(own), user=user, parents=parents, warm=str(tmp_path / "warm"))
        return short_programs.run_program(["sh", "-c", script]).stdout.splitlines()

    me = tmp_path.owner()
    assert (report_of(me)[0], report_of("nobody")[1]) == (f"{me} 700", f"{me} has something in it")
    (tmp_path / "warm").mkdir()
    (tmp_path / "warm" / "loose").touch()
    (tmp_path / "warm" / "loose").chmod(0o666)
    assert f"{me} 666 among what others begin with" in report_of(me)
    own.parent.chmod(0o775)
    assert f"{me} 775 {own.parent}" in report_of(me)
    (tmp_path / "chat").rename(tmp_path / "gone")
    assert f"{me} 700" not in report_of(me)
