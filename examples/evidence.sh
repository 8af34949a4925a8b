#!/usr/bin/env bash
# The paper's comparison on one machine with the simulated model, on every task: `make evidence`.
# Stopped and started again it goes on: finished cells are kept in $OUT/<task>, or in $OUT/compared, where one
# table and one plot hold all tasks: with strategies that ask no @all.
# METHODS: base methods to run each strategy by, such as GEPA; empty: the manifests' own.
# ROWS: rows of the first file to learn from, a number or task=number ...; @all in STRATEGIES is that number.
# SLOTS: numbers of slots to time every run on. A strategy without @ is the manifest as shipped, which chooses its
# batch sizes by its slots and by the time that calls take: it is run for each, on servers that take TIME_SCALE of
# the modelled time. All others ask servers that answer at once.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
OUT=$(realpath -m "${OUT:-out/evidence}")
SEEDS=${SEEDS:-10}
ROWS=${ROWS:-formula=250 finer=350}
JOBS=${JOBS:-3}
STRATEGIES=${STRATEGIES:-Sequential,Naive@10,Naive@25,Naive@100,TopK@100,Summarize@100,ParallelScan,ParallelScan@100,ParallelScan:Duplicate@250}
MANIFESTS=${MANIFESTS:-examples/formula.yaml examples/finer.yaml}
SLOTS=${SLOTS:-8,64,256}
TIME_SCALE=${TIME_SCALE:-0.5}
METHODS=${METHODS:-}
mkdir -p "$OUT/data"

rows_of() {
  local one
  for one in $ROWS; do
    case $one in "$1"=*) echo "${one#*=}"; return ;; *=*) ;; *) echo "$one"; return ;; esac
  done
  wc -l <"$2"
}

keys=()
for manifest in $MANIFESTS; do
  name=$(basename "$manifest" .yaml)
  data=examples/data/$name
  "$BIN/combee" sim key --task "$name" --data "$data/train.jsonl" --data "$data/heldout.jsonl" -o "$OUT/data/$name.key.json"
  keys+=(--key "$OUT/data/$name.key.json")
  head -n "$(rows_of "$name" "$data/train.jsonl")" "$data/train.jsonl" >"$OUT/data/$name.train.jsonl"
  # The manifest as it is, but for the rows, the slots, an embedder (TopK's), and no budget: paths become absolute.
  "$BIN/python" - "$manifest" "$OUT/data/$name.train.jsonl" "$PWD/$data/heldout.jsonl" "${SLOTS##*,}" >"$OUT/data/$name.yaml" <<'PY'
import sys, yaml
path, train, held_out, slots = sys.argv[1:]
run = yaml.safe_load(open(path))
run["metadata"]["name"] = path.rpartition("/")[2].removesuffix(".yaml")
data = run["spec"]["task"]["data"]
data["train"], data["heldOut"] = {"uri": train}, {"uri": held_out}
run["spec"].setdefault("workers", {})["concurrency"] = int(slots)
run["spec"]["models"]["embedder"] = {"engineRef": run["spec"]["models"]["task"]["engineRef"]}
print(yaml.safe_dump(run, sort_keys=False))
PY
done

# A server of its own for each seed: another seed is another model, with other rules unknown to it.
sims=() engines=()
trap 'kill "${sims[@]}" 2>/dev/null || true' EXIT

serve() {  # TIME_SCALE: one for each seed, whose addresses are then in engines
  local seed port
  engines=()
  rm -f "$OUT"/data/port*
  for seed in $(seq 0 $((SEEDS - 1))); do
    "$BIN/combee" sim serve openai/gpt-oss-120b --port 0 --port-file "$OUT/data/port$seed" --seed "$seed" "${keys[@]}" \
      --time-scale "$1" >"$OUT/data/sim$seed.log" 2>&1 &
    sims+=($!)
  done
  for seed in $(seq 0 $((SEEDS - 1))); do
    port=$OUT/data/port$seed
    for _ in $(seq 600); do
      [ -s "$port" ] && break
      kill -0 "${sims[-$((SEEDS - seed))]}" 2>/dev/null || { cat "$OUT/data/sim$seed.log"; exit 1; }
      sleep 0.1
    done
    engines+=(--engine "main=http://127.0.0.1:$(cat "$port")/v1")
  done
}

compared() {  # FOLDER JOBS STRATEGIES NAME...: one comparison of these tasks
  local folder=$1 jobs=$2 strategies=$3 files=() name
  shift 3
  for name; do files+=(-f "$OUT/data/$name.yaml"); done
  "$BIN/combee" compare "${files[@]}" --strategies "$strategies" --seeds "$SEEDS" --jobs "$jobs" --slots "$SLOTS" \
    --evaluate-every "${EVERY:-$(every "$strategies")}" ${METHODS:+--methods "$METHODS"} -o "$folder" "${engines[@]}"
}

every() {  # STRATEGIES: the largest batch, which a manifest as shipped may make of 250
  { tr ',' '\n' <<<"$1" | sed -n 's/.*@//p'; [ -z "$(shipped "$1")" ] || echo 250; echo 1; } | sort -n | tail -1
}

shipped() {  # STRATEGIES: those that choose their own sizes
  tr ',' '\n' <<<"$1" | grep -v -e @ -e '^Sequential$' | paste -sd,
}

names=()
for manifest in $MANIFESTS; do names+=("$(basename "$manifest" .yaml)"); done
folders=() asked=() tasks=()
if [[ $STRATEGIES == *@all* ]]; then
  for name in "${names[@]}"; do  # @all is another number for each task, so each is a comparison of its own
    folders+=("$OUT/$name") asked+=("${STRATEGIES//@all/@$(wc -l <"$OUT/data/$name.train.jsonl")}") tasks+=("$name")
  done
elif [ ${#names[@]} -gt 1 ]; then
  folders=("$OUT/compared") asked=("$STRATEGIES") tasks=("${names[*]}")
else
  folders=("$OUT/${names[0]}") asked=("$STRATEGIES") tasks=("${names[0]}")
fi

if [ -n "$(shipped "$STRATEGIES")" ]; then
  serve "$TIME_SCALE"  # these runs mostly wait: one for each seed side by side
  for n in "${!folders[@]}"; do
    # shellcheck disable=SC2086  # names of tasks
    EVERY=$(every "${asked[n]}") compared "${folders[n]}" "$SEEDS" "$(shipped "${asked[n]}")" ${tasks[n]} >/dev/null
  done
  kill "${sims[@]}"
fi
serve 0
for n in "${!folders[@]}"; do
  # shellcheck disable=SC2086  # names of tasks
  compared "${folders[n]}" "$JOBS" "${asked[n]}" ${tasks[n]}
  echo "see ${folders[n]}/compare.html"
done
