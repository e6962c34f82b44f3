"""The options of a vLLM, from its own parser, its own models of configurations and its own registries: JSON.

    ENVIRONMENT/bin/python -m lab.vllm_snapshot > catalog/flags/vllm-VERSION.json

It runs inside of an environment with vLLM, in this repository's folder, with a card or without one (then it needs cc
and nm), and imports nothing else of this repository. A line is one option, one field, one variable or one list of
names, so that two versions can be compared; rigwright/engines/vllm/option_snapshot.py says what each key means. After
a new snapshot, tests/vllm/test_option_validation.py lists where vLLM judges other than judge.py and rules.py in
rigwright/engines/vllm; options that are gone go into `REMOVED` of own.py there.
"""
