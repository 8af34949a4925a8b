#!/usr/bin/env bash
# What the small real model cannot do. First the office with all seven facts given from the start. Then Formula and
# FiNER, which are beyond it: how such runs end, and with how many calls against those of a good model, the simulated
# one, on the same rows. Once examples/real-model.sh has installed it, and the server lists its model:
#
#   bash examples/serve-real.sh 8000
#   bash bench/limits.sh http://127.0.0.1:8000/v1 out/limits
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
URL=${1:?the URL of the small model} OUT=${2:?a folder for the runs}
MODEL=HuggingFaceTB/SmolLM2-135M-Instruct # of 8,192 tokens of context the server gives 4,096

learn() { # learn TASK ROWS MODEL URL
  local code=0 folder=$OUT/$1-${3##*/}
  "$BIN/combee" run -f "$OUT/$1.yaml" -o "$folder" --data "train=$2/train.jsonl" --data "heldOut=$2/heldout.jsonl" \
    --engine "main=$4" --engine-model "main=$3" >"$folder.log" || code=$?
  [ -e "$folder/result.json" ] || { tail -n 3 "$folder.log"; exit $code; }
  "$BIN/python" -c '
import json, sys
name, code, file = sys.argv[1:]
result = json.load(open(file))
held = result["heldOut"]
server, calls = result["models"]["task"]["servedBy"], sum(usage["calls"] for usage in result["usage"].values())
select = [f"{score:.3f}" for score in (held["baseline"]["select"], (held["best"] or held["baseline"])["select"])]
print(f"{name}, served by {server}: exit code {code},", result["outcome"] + ", select", " -> ".join(select) + ",", calls, "calls")' \
    "$1, $3" $code "$folder/result.json"
}

[ ! -e "$OUT" ] || { echo "$OUT is there already: name a new folder"; exit 2; }
mkdir -p "$OUT"
office=examples/office
PYTHONPATH=operator:$office "$BIN/python" -c '
import sys, yaml
from office import FACTS
run = next(one for one in yaml.safe_load_all(open("examples/real.yaml")) if one["kind"] == "PromptLearningRun")
run["spec"]["task"]["initialPlaybook"] = {"uri": "office.md"}
run["metadata"]["name"] = "office"
yaml.safe_dump(run, open(f"{sys.argv[1]}/office.yaml", "w"))
open(f"{sys.argv[1]}/office.md", "w").write("".join(f"- {fact}\n" for fact in FACTS.values()))' "$OUT"
PYTHONPATH=$office learn office "$office" "$MODEL" "$URL"

for row in formula:60:200 finer:60:300; do
  IFS=: read -r task rows answer <<<"$row"
  data=examples/data/$task
  mkdir "$OUT/$task"
  for split in train heldout; do head -n "$rows" "$data/$split.jsonl" >"$OUT/$task/$split.jsonl"; done
  sed -e "s/task: {engineRef: {name: main}}/task: {engineRef: {name: main}, sampling: {maxTokens: $answer}}/" \
    -e 's/temperature: 0.7}/temperature: 0.7, maxTokens: 300}/' -e 's/renderTokenBudget: 8000/renderTokenBudget: 1000/' \
    -e 's/maxFanIn: 32/maxInputTokens: 2500/' -e 's/concurrency: 64/concurrency: 16, hedgeBudget: 0/' -e 's/{mode: Dynamic, .*/{mode: Fixed, size: 20, reason: small}/' \
    "examples/$task.yaml" >"$OUT/$task.yaml"
  "$BIN/combee" sim key --task "$task" --data "$data/train.jsonl" --data "$data/heldout.jsonl" -o "$OUT/$task-key.json" >/dev/null
  rm -f "$OUT/port"
  "$BIN/combee" sim serve openai/gpt-oss-120b --port 0 --port-file "$OUT/port" --key "$OUT/$task-key.json" --time-scale 0 >"$OUT/sim.log" 2>&1 &
  trap "kill $! 2>/dev/null || true" EXIT
  until [ -s "$OUT/port" ]; do
    kill -0 $! 2>/dev/null || { cat "$OUT/sim.log"; exit 1; }
    sleep 0.1
  done
  learn "$task" "$OUT/$task" openai/gpt-oss-120b "http://127.0.0.1:$(cat "$OUT/port")/v1"
  kill $!
  learn "$task" "$OUT/$task" $MODEL "$URL"
done
