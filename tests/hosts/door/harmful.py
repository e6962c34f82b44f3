"""Fields of requests that harm engines, and salts that keep clients' prompts apart in an engine's cache."""

import json

from door.clients import posting
from door.world import ALICE, OFTEN, RULES, World, with_model_settings

PATHS = ["chat/completions", "completions", "responses", "embeddings", "rerank"]


@with_model_settings(paths=PATHS)
async def no_harmful_field_arrives_at_an_engine(world: World) -> None:
    for one in RULES["refused"]:
        status, _, body = await world.post({"model": "tiny", **one["members"]}, path=f"/v1/{one['path']}")
        error = json.loads(body)["error"]
        assert (status, error["type"]) == (400, "invalid_request_error"), (one, body)
        # by this rule, or an earlier one for the same field
        assert error["param"] and "allow_fields = [" in error["message"], error
    assert world.reached() == 0
    for one in RULES["passed"]:
        status, _, body = await world.post({"model": "tiny", **one["members"]}, path=f"/v1/{one['path']}")
        assert status == 200, (one, body)
    assert world.reached() == len(RULES["passed"])


@with_model_settings(allow_fields=["chat_template"])
async def a_field_that_is_allowed_arrives(world: World) -> None:
    status, _, _ = await world.post({"model": "tiny", "chat_template": "{{ 1 }}"})
    (reached,) = [one for engine in world.engines.values() for one in engine.reached]
    assert status == 200 and json.loads(reached[2])["chat_template"] == "{{ 1 }}"
    assert (await world.post({"model": "tiny", "logits_processors": ["os.system"]}))[0] == 400


def _salts(world: World) -> list[str]:
    """Of all that arrived, in no order; each body has to be one in which every reader finds one salt."""
    found = []
    for engine in world.engines.values():
        for _, _, body in engine.reached:
            pairs = json.loads(body, object_pairs_hook=list)
            assert [name for name, _ in pairs].count("cache_salt") == 1, body[:200]
            assert dict(pairs)["model"] == ("tiny" if engine.name == "one" else "tiny-of-two.gguf")
            found.append(dict(pairs)["cache_salt"])
        engine.reached.clear()
    return found


@with_model_settings(salted=True)
async def each_key_has_a_salt_of_its_own(world: World) -> None:
    def asking(key: str, **more: object) -> bytes:
        sent = json.dumps({**more, "model": "tiny", "messages": []}).encode()
        text: bytes = posting(sent, f"Authorization: Bearer {key}")
        return text

    for _ in range(4):
        assert (await world.ask(asking(ALICE), world.port + 1))[0] == 200
    # in a file, where nginx keeps it
    assert (await world.ask(asking(ALICE, long="x" * 300_000), world.port + 1))[0] == 200
    (alice,) = set(_salts(world))
    assert len(alice) == 64
    assert (await world.ask(asking(OFTEN), world.port + 1))[0] == 200
    (often,) = set(_salts(world))
    assert (await world.post({"model": "tiny"}))[0] == 200
    (keyless,) = set(_salts(world))
    assert len({alice, often, keyless}) == 3
    # at another instance, where the first does not listen
    for engine in world.engines.values():
        await engine.kill()
        for _ in range(2):
            assert (await world.ask(asking(ALICE), world.port + 1))[0] == 200
        await engine.start()
    assert set(_salts(world)) == {alice}
    for value in (alice, None):
        status, _, body = await world.ask(asking(ALICE, cache_salt=value), world.port + 1)
        assert (status, json.loads(body)["error"]["param"]) == (400, "cache_salt")
    assert not world.reached()
