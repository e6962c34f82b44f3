"""One RTX 5090: a chat model with vision on the card, a small one for translations on the CPU.

Copy it into a folder of your own, put your box's address in, and lock its weights with `rigwright lock rig5090solo.py`:
20 GB that the box then fetches from the hub. Until they are locked it is refused, and names them.
"""

from rigwright.inventory import hosts

rigs = hosts(
    {
        "rig5090solo": {
            "ssh_hostname": "192.0.2.50",  # a reserved address (RFC 5737): put yours here
            "ssh_user": "ops",  # may use sudo without a password; root needs no `_sudo`
            "_sudo": True,
            "cards": ["rtx-5090"],  # in the order of `lspci -d 10de:`
            # deploys bring it, with open kernel modules: no others drive this card. The first deploy needs `--reboot`,
            # or "reboot": True here; on Debian it is locked first (docs/guides/driver.md). Omit it if it is yours.
            "driver": {"managed": True},
            "instances": {
                # card 0 is the first of `cards`; these ports are on the loopback interface. Prompts of more than 32768
                # tokens: llamacpp/qwen3.5-35b-a3b-long, one request at a time.
                "chat": {"variant": "llamacpp/qwen3.5-35b-a3b", "cards": [0], "port": 28082},
                # no cards: the chat model has the card for itself
                "translate": {"variant": "llamacpp/qwen2.5-1.5b-cpu", "port": 28083},
            },
            # The plain addresses that clients of such a box are set up for, one a model: no key, no TLS, open to the
            # network. With keys instead: leave "keys" out; `rigwright key make rig5090solo.py NAME` makes them.
            "gateway": {
                "listeners": {
                    "chat": {"address": "0.0.0.0", "port": 18082, "keys": False, "models": ["Qwen3.5-35B-A3B"]},  # noqa: S104
                    "translate": {
                        **{"address": "0.0.0.0", "port": 18083, "keys": False},  # noqa: S104
                        "models": ["Qwen2.5-1.5B-Instruct"],
                    },
                },
                "models": {
                    "Qwen3.5-35B-A3B": {"instances": ["chat"]},
                    "Qwen2.5-1.5B-Instruct": {"instances": ["translate"]},
                },
                "aliases": {"gpt-4o": "Qwen3.5-35B-A3B"},  # one client always asks for that
            },
        },
    }
)
