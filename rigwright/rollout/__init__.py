"""A rollout: a deploy of many boxes in batches that stops at the first box that fails its gate."""
