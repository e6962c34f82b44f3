"""The prefix cache hits that vLLM reports for a repeated prompt, where a draft is verified and where none is: JSON out.

Of a model with full attention and a recurrent state, of which four blocks each are kept: the tokens that need not be
computed again, then the blocks of either kind that vLLM reports for them.
"""

import json
from importlib import import_module

BLOCK, SEEN = 16, 4
"""Tokens of a block, and how many are kept."""


def count_hits(draft: bool) -> list[int]:
    """Tokens, blocks of attention, blocks of state."""
    torch, kinds = import_module("torch"), import_module("vllm.v1.kv_cache_interface")
    coordinator = import_module("vllm.v1.core.kv_cache_coordinator")
    named = import_module("vllm.v1.core.kv_cache_utils").make_block_hash_with_group_id
    attention = kinds.FullAttentionSpec(BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
    state = kinds.MambaSpec(BLOCK, shapes=((8, 8),), dtypes=(torch.float32,), mamba_cache_mode="all")
    groups = [kinds.KVCacheGroupSpec(["attention"], attention), kinds.KVCacheGroupSpec(["state"], state)]
    config = kinds.KVCacheConfig(64, [], groups)
    made = coordinator.get_kv_cache_coordinator(config, 1024, 1024, draft, True, False, 1, 1, BLOCK)
    hashes = [bytes([number]) * 32 for number in range(SEEN + 1)]
    for group in range(len(groups)):
        for one, block in zip(hashes[:SEEN], made.block_pool.get_new_blocks(SEEN), strict=True):
            block.block_hash = named(one, group)
            made.block_pool.cached_block_hash_to_block.insert(block.block_hash, block)
    blocks, tokens = made.find_longest_cache_hit(hashes, (SEEN + 1) * BLOCK - 1)
    return [tokens, *(len(one) for one in blocks)]


if __name__ == "__main__":
    print(json.dumps({"draft": count_hits(draft=True), "alone": count_hits(draft=False)}))
