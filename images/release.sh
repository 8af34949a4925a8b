#!/usr/bin/env bash
# What a release is made of, into the folder OUT (build/release): images/release.sh build | describe | sign | rehearse
#   build      images of worker and operator, pushed to REGISTRY; images.txt has each with its digest
#   describe   a bill of materials (CycloneDX) of each image's Python packages, from its lock; the chart as a package
#   sign       SHA256SUMS of all of that, and a signature of it (sigstore, by the identity of the workflow)
#   rehearse   all that needs neither a registry nor that identity: describe, SHA256SUMS, and a check of both
# TAG, where it is set, must be v and the version that stands in the files.
# Chosen by the environment: BASE and SHELL_IMAGE, by digest; REGISTRY; PYTHON, which has requirements-release.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-build/release}
PYTHON=${PYTHON:-python3}
IMAGES=(worker operator)
VERSION=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' operator/combee/__init__.py)
CHART=$(sed -n 's/^version: *//p' charts/combee-operator/Chart.yaml)
[ "$CHART" = "$VERSION" ] || { echo "the chart is of $CHART and the packages are of $VERSION" >&2; exit 2; }
[ -z "${TAG:-}" ] || [ "$TAG" = "v$VERSION" ] || { echo "the tag $TAG is not v$VERSION, the version of what is built" >&2; exit 2; }
mkdir -p "$OUT"

pinned() { # pinned NAME: refuses an image that is not named by its digest, since a tag can move
  [[ ${!1:-} =~ @sha256:[0-9a-f]{64}$ ]] || { echo "$1 must name an image by its digest: NAME@sha256:..." >&2; exit 2; }
}

with_helm() {
  command -v helm >/dev/null || { echo "helm is not on the PATH: a release has the chart as a package" >&2; exit 2; }
}

build() {
  pinned BASE
  pinned SHELL_IMAGE
  [ -n "${REGISTRY:-}" ] || { echo "REGISTRY must name where images are pushed" >&2; exit 2; }
  with_helm # before anything is pushed
  : >"$OUT/images.txt"
  BUILDER=docker BASE=$BASE SHELL_IMAGE=$SHELL_IMAGE REGISTRY=$REGISTRY PYTHON=$PYTHON images/build.sh "${IMAGES[@]}"
  for image in "${IMAGES[@]}"; do
    local name=$REGISTRY/combee-$image:$VERSION
    docker push -q "$name"
    docker inspect --format '{{index .RepoDigests 0}}' "$name" >>"$OUT/images.txt"
  done
}

describe() {
  for image in "${IMAGES[@]}"; do
    "$PYTHON" -m cyclonedx_py requirements --spec-version 1.6 --output-reproducible --of JSON \
      -o "$OUT/combee-$image-$VERSION.cdx.json" "images/$image/requirements.lock"
  done
  with_helm
  helm package charts/combee-operator -d "$OUT" >/dev/null
}

sums() {
  (cd "$OUT" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
}

sign() {
  sums
  "$PYTHON" -m sigstore sign --overwrite --bundle "$OUT/SHA256SUMS.sigstore.json" "$OUT/SHA256SUMS"
}

rehearse() {
  describe
  sums
  (cd "$OUT" && sha256sum -c SHA256SUMS)
  "$PYTHON" -m sigstore --version
  echo "not rehearsed: pushing the images, which needs docker and a registry, and signing, which needs the workflow's identity"
}

case ${1:-} in
  build | describe | sign | rehearse) "$1" ;;
  *) echo "usage: images/release.sh build | describe | sign | rehearse" >&2; exit 2 ;;
esac
