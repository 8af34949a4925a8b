"""Same seed, same plan, in another process and under another PYTHONHASHSEED."""

import subprocess
import sys
from pathlib import Path

OPERATOR = Path(__file__).parents[3] / "operator"

PLAN = """
from combee.algo.components import similarity_components, similarity_labels
from combee.algo.membership import batch, shards, split_select_gate
from combee.algo.seeds import digest_of, rng, unit
from combee.algo.stats import paired_difference
from combee.algo.text import anchors, token_set
from combee.algo.tree import Caps, plan_leaves

ids = [f"e{i}" for i in range(200)]
texts = [f"For rule {i % 7} use `factor_{i % 5}` of {i % 3}.5% on net income {i % 11}" for i in range(120)]
texts += [f"subtract {w} from the total income when revenue falls" for w in "costs fees taxes rents".split()]
leaves = plan_leaves([100 + i % 9 for i in range(300)], Caps(8, 24_000), seed=7, iteration=3, copies=2)
paired = paired_difference({i: 0.5 for i in ids}, {i: unit(1, i) for i in ids}, seed=3)
print(digest_of([
    leaves, batch(ids, 7, 1, 30, 40), split_select_gate(ids, "d"),
    shards(list(range(50)), 4),
    rng(7, "a", 1).random(5).tolist(), unit(7, "b"), sorted(token_set(texts[0])),
    sorted(anchors(texts[0]).numbers),
    similarity_components(texts, cap=8), similarity_labels(texts, same_condition=True),
    [paired.mean, paired.low, paired.high],
]))
"""


def test_same_plan_under_any_hash_seed() -> None:
    outputs = set()
    for hash_seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", PLAN],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(OPERATOR)},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1 and len(outputs.pop()) == 65
