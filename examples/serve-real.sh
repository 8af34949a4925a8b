#!/usr/bin/env bash
# Serve SmolLM2-135M-Instruct with vLLM on the CPU as the engine of a manifest says, at http://127.0.0.1:PORT/v1:
#
#   bash examples/serve-real.sh PORT [MANIFEST]
#
# BIN=DIR is where combee is installed, REAL=DIR what examples/real-model.sh installed; both have the Makefile's defaults. MANIFEST: examples/real.yaml unless
# another is named.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin}
REAL=$(realpath "${REAL:-build/real}")
lines=$("$BIN/python" -c '
import sys, yaml
run = next(one for one in yaml.safe_load_all(open(sys.argv[1])) if one["kind"] == "PromptLearningRun")
vllm = run["spec"]["engines"][0]["vllm"]
print(vllm["model"], *vllm["args"], sep="\n")' "${2:-examples/real.yaml}")
mapfile -t words <<<"$lines"
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=auto
export PATH=$REAL/venv/bin:$PATH
exec vllm serve "$REAL/weights" --host 127.0.0.1 --port "${1:?the port to serve at}" --enable-prompt-tokens-details \
  --served-model-name "${words[@]}"
