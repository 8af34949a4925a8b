#!/usr/bin/env bash
# A Chromium for the tests of pages. Nothing is done where there is one; as root on Debian it is installed; elsewhere
# the tests say what to install, and are skipped.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "no Chromium is here: the tests of pages will be skipped" >&2
  exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing chromium fonts-dejavu-core (once)" >&2
# Without a font every text is boxes, and the sizes of a page mean nothing.
{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } \
  >"$log" 2>&1 || { tail -20 "$log" >&2; echo "apt-get could not install chromium: the tests of pages cannot run" >&2; }
