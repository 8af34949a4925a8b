#!/usr/bin/env bash
# Builds the images with buildah or docker, whichever is there: images/build.sh [NAME...]
# Without a name it builds worker, operator and sim; the others are vllm-cpu, smollm2 and office, for a run with a real model.
# Chosen by the environment: BUILDER, BASE (the image they are built on), SHELL_IMAGE (one with a static /bin/busybox), CONTEXTS (folder for what they are built from),
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

build() { # build IMAGE: names it REGISTRY/combee-IMAGE:VERSION; nothing when it was built from the same before
  local image=$1 name=$REGISTRY/combee-$1:$VERSION base=${BASE:-} argument=BASE made_of
  local context=$CONTEXTS/$image
  "$PYTHON" images/context.py "$image" "$context"
  case $image in
    sim | office) argument=WORKER base=$REGISTRY/combee-worker:$VERSION ;;
    smollm2) argument=VLLM base=$REGISTRY/combee-vllm-cpu:$VERSION ;;
  esac
  made_of=$({ cat "$context"/.*.made-of "$context/Dockerfile"; echo "$base $("$BUILDER" images -q "$base" 2>/dev/null)"; } | sha256sum)
  echo "$name"
  [ "$made_of" != "$(cat "$context.built" 2>/dev/null)" ] || [ -z "$("$BUILDER" images -q "$name" 2>/dev/null)" ] || return 0
  local options=(-q ${base:+--build-arg "$argument=$base"} -t "$name")
  [ "$image" != worker ] || options+=(${SHELL_IMAGE:+--build-arg "SHELL_IMAGE=$SHELL_IMAGE"})
  [ "$(basename "$BUILDER")" != buildah ] || options+=(--layers --isolation chroot --pull-never)
  "$BUILDER" build "${options[@]}" "$context" >/dev/null
  echo "$made_of" >"$context.built"
}

[ $# -gt 0 ] || set -- worker operator sim
for image in "$@"; do build "$image"; done
