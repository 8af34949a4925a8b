#!/usr/bin/env bash
# Learn a playbook from the real Formula data with the simulated model: `make demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
OUT=${OUT:-out/demo}
DATA=examples/data/formula
rm -rf "$OUT" && mkdir -p "$OUT"

echo "starting the simulated model (no weights, no GPU; it models context overload)"
"$BIN/combee" sim key --task formula --data "$DATA/train.jsonl" --data "$DATA/heldout.jsonl" -o "$OUT/key.json"
"$BIN/combee" sim serve openai/gpt-oss-120b --port 0 --port-file "$OUT/port" --key "$OUT/key.json" \
  --time-scale "${TIME_SCALE:-0.1}" --log "$OUT/requests.log" >"$OUT/sim.log" 2>&1 &
sim=$!
trap 'kill $sim 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  [ -s "$OUT/port" ] && break
  kill -0 $sim 2>/dev/null || { cat "$OUT/sim.log"; exit 1; }
  sleep 0.1
done
url="http://127.0.0.1:$(cat "$OUT/port")/v1"

echo
echo "\$ combee preview -f examples/formula.yaml"
"$BIN/combee" preview -f examples/formula.yaml
echo
echo "\$ combee run -f examples/formula.yaml -o $OUT/run --engine main=$url"
"$BIN/combee" run -f examples/formula.yaml -o "$OUT/run" --engine "main=$url"

echo
echo "The same with a real model: recorded from SmolLM2-135M-Instruct, 135 million parameters, behind vLLM on two CPU cores."
echo "Nothing is asked now: every answer is in examples/recorded."
mkdir -p "$OUT/recorded/store"
tar -xzf examples/recorded/memo.tar.gz -C "$OUT/recorded/store"
rows=(--data train=examples/office/train.jsonl --data heldOut=examples/office/heldout.jsonl)
echo "\$ PYTHONPATH=examples/office combee run -f examples/real.yaml -o $OUT/recorded --recorded ${rows[*]}"
PYTHONPATH=examples/office "$BIN/combee" run -f examples/real.yaml -o "$OUT/recorded" --recorded "${rows[@]}"
echo
echo "Of the seven facts it then knows three: pepper, olive and amber. docs/evidence/real.md says how far this model gets."
echo "A held-out question, without the playbook and with it (recorded):"
awk '/^### /{shown++} shown == 1' "$OUT"/recorded/store/runs/*/changed.md
