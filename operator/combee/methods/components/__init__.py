"""A prompt of named components as an artifact: what the methods share that learn one."""
