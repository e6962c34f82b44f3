"""Where bytes come from: inputs, lock, bundle, mirrors."""
