"""``combee audit`` without its output: a run done again with other seeds and fresh answers, and stamped."""
