#!/usr/bin/env bash
# Builds HEAD again in another folder, with another CARGO_HOME and another cache, and
# compares the sums: cross/reproduce.sh [TARGET...], after cross/build.sh of the same.
set -euo pipefail
cd "$(dirname "$0")/.."

elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
git clone --quiet . "$elsewhere/some where/else"
# RUSTUP_HOME is told apart from HOME, which stays.
CARGO_HOME=$elsewhere/cargo XDG_CACHE_HOME=$elsewhere/cache \
  "$elsewhere/some where/else/cross/build.sh" "$@"
for sums in "$elsewhere/some where/else/dist"/*/SHA256SUMS; do
  target=$(basename "$(dirname "$sums")")
  (cd "dist/$target" && sed "s|  |  $target/|" "$sums" && sha256sum --check --strict "$sums")
done
