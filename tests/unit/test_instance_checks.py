"""The facts of an instance's process, and of its engine's compiled code."""

from rigwright.engines import kind_of
from rigwright.serving.instance_units import find_foreign_variables
from tests.unit.samples import sample_installation, sample_instance, sample_rig


def test_a_process_has_no_variables_but_its_units_and_systemds() -> None:
    one = sample_instance()
    service = kind_of(one).service(sample_rig(one), one, sample_installation())
    systemds = {"LANG", "LC_ALL", "USER", "INVOCATION_ID", "CREDENTIALS_DIRECTORY", "https_proxy"}
    known = {"RW_DIGEST", "CUDA_VISIBLE_DEVICES", *service.environment, *systemds}
    assert find_foreign_variables(known, one, service) == []
    added = {"LLAMA_ARG_CTX_SIZE", "VLLM_PLUGINS", "LD_PRELOAD", "CACHE_DIRECTORY_2", "LC_"}
    assert find_foreign_variables(known | added, one, service) == sorted(added)
