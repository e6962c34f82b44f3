"""Tests on a machine with a card: `./rig test gpu`. Each module brings the machine to the state that it needs.

Everything that the machine lacks is named before a test begins. A bare Ubuntu lacks python3-venv, systemd-container,
nftables, iproute2, openssh-client, debootstrap and debian-archive-keyring; with a network they are installed, and base
images are made. For a machine without a network, on another one that has one:

    .venv/bin/python -m tests.gpu.gpu_bundle FOLDER    # for --bundle; lists the base images and the layer that it needs
    .venv/bin/python -m tests.gpu.container_layer        # that layer, for the tests of containers
    .venv/bin/python -m tests.gpu.vllm_bundle FOLDER      # for --vllm: vLLM's bundle, 4 GB, its catalogue and locks
"""
