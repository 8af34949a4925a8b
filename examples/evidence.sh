#!/usr/bin/env bash
# The paper's comparison on one machine with the simulated model: `make evidence`. About 20 minutes on 2 cores.
# Stopped and started again it goes on: finished cells are kept in $OUT/compare.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
OUT=${OUT:-out/evidence}
SEEDS=${SEEDS:-10}
ROWS=${ROWS:-250}
JOBS=${JOBS:-3}
STRATEGIES=${STRATEGIES:-Sequential,Naive@100,ParallelScan@100,ParallelScan:Duplicate@100,ParallelScan:Model:Sqrt:Duplicate@100,ParallelScan@250,ParallelScan:Duplicate@250}
MANIFESTS=${MANIFESTS:-examples/formula.yaml}
SLOTS=${SLOTS:-256}
mkdir -p "$OUT/data"

keys=() files=()
for manifest in $MANIFESTS; do
  name=$(basename "$manifest" .yaml)
  data=examples/data/$name
  "$BIN/combee" sim key --task "$name" --data "$data/train.jsonl" --data "$data/heldout.jsonl" -o "$OUT/data/$name.key.json"
  keys+=(--key "$OUT/data/$name.key.json")
  head -n "$ROWS" "$data/train.jsonl" >"$OUT/data/$name.train.jsonl"
  # The manifest as it is, but for the rows, the slots, and no budget: paths become absolute.
  "$BIN/python" - "$manifest" "$PWD/$OUT/data/$name.train.jsonl" "$PWD/$data/heldout.jsonl" "$SLOTS" >"$OUT/data/$name.yaml" <<'PY'
import sys, yaml
path, train, held_out, slots = sys.argv[1:]
run = yaml.safe_load(open(path))
run["metadata"]["name"] = path.rpartition("/")[2].removesuffix(".yaml")
data = run["spec"]["task"]["data"]
data["train"], data["heldOut"] = {"uri": train}, {"uri": held_out}
run["spec"].setdefault("workers", {})["concurrency"] = int(slots)
print(yaml.safe_dump(run, sort_keys=False))
PY
  files+=(-f "$OUT/data/$name.yaml")
done

# A server of its own for each seed: another seed is another model, with other rules unknown to it.
sims=() engines=()
trap 'kill "${sims[@]}" 2>/dev/null || true' EXIT
rm -f "$OUT"/data/port*
for seed in $(seq 0 $((SEEDS - 1))); do
  "$BIN/combee" sim serve openai/gpt-oss-120b --port 0 --port-file "$OUT/data/port$seed" --seed "$seed" "${keys[@]}" \
    --time-scale 0 >"$OUT/data/sim$seed.log" 2>&1 &
  sims+=($!)
done
for seed in $(seq 0 $((SEEDS - 1))); do
  for _ in $(seq 600); do
    [ -s "$OUT/data/port$seed" ] && break
    kill -0 "${sims[$seed]}" 2>/dev/null || { cat "$OUT/data/sim$seed.log"; exit 1; }
    sleep 0.1
  done
  engines+=(--engine "main=http://127.0.0.1:$(cat "$OUT/data/port$seed")/v1")
done

"$BIN/combee" compare "${files[@]}" --strategies "$STRATEGIES" --seeds "$SEEDS" --jobs "$JOBS" -o "$OUT/compare" "${engines[@]}"
echo "see $OUT/compare/compare.html"
