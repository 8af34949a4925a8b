#!/usr/bin/env bash
# Builds the images with buildah or docker, whichever is there: images/build.sh [worker] [operator] [sim]
# Chosen by the environment: BUILDER, BASE (the image they are built on), CONTEXTS (folder for what they are built from),
# REGISTRY (the first part of their names), PYTHON (one that has pip, setuptools and packaging).
# images/vllm is not built here, for its base is not ours: see its first lines.
set -euo pipefail
cd "$(dirname "$0")/.."
BUILDER=${BUILDER:-$(command -v buildah || command -v docker || true)}
CONTEXTS=${CONTEXTS:-build/images}
REGISTRY=${REGISTRY:-localhost}
PYTHON=${PYTHON:-python3}
[ -n "$BUILDER" ] || { echo "neither buildah nor docker is installed" >&2; exit 1; }
VERSION=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' operator/combee/__init__.py)

build() { # build IMAGE: names it REGISTRY/combee-IMAGE:VERSION
  local image=$1 name=$REGISTRY/combee-$1:$VERSION arguments=()
  "$PYTHON" images/context.py "$image" "$CONTEXTS/$image"
  if [ "$image" = sim ]; then
    arguments+=(--build-arg "WORKER=$REGISTRY/combee-worker:$VERSION")
  elif [ -n "${BASE:-}" ]; then
    arguments+=(--build-arg "BASE=$BASE")
  fi
  if [ "$(basename "$BUILDER")" = buildah ]; then
    "$BUILDER" build -q --layers --isolation chroot --pull-never "${arguments[@]}" -t "$name" "$CONTEXTS/$image" >/dev/null
  else
    "$BUILDER" build -q "${arguments[@]}" -t "$name" "$CONTEXTS/$image" >/dev/null
  fi
  echo "$name"
}

[ $# -gt 0 ] || set -- worker operator sim
for image in "$@"; do build "$image"; done
