#!/usr/bin/env bash
# Installs the missing tools of cross/build.sh on a Debian or Ubuntu machine with rustup, and
# prints the path of zig.
set -euo pipefail
cd "$(dirname "$0")/.."

{
  # zig contains clang, lld and musl for every target: one download instead of three cross
  # compilers, and the same bytes on every Debian release.
  version=$(sed -n 's/^ziglang==\([^ ]*\).*/\1/p' cross/ziglang.txt)
  tools=${XDG_CACHE_HOME:-$HOME/.cache}/nodelet/ziglang-$version
  if ! test -x "$tools/ziglang/zig"; then
    python3 -m pip --version >/dev/null ||
      { apt-get update -qq && apt-get install -y -qq python3-pip; }
    mkdir -p "${tools%/*}"
    # Unpack elsewhere and rename, so that the folder is complete also if two builds run at once.
    new=$(mktemp -d "$tools.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes \
      --requirement cross/ziglang.txt --dest "$new"
    python3 -m zipfile -e "$new"/ziglang-*.whl "$new"
    rm "$new"/*.whl
    chmod +x "$new/ziglang/zig"
    mv -T "$new" "$tools" || test -x "$tools/ziglang/zig"
  fi
  # cross/cargo.sh builds std from source.
  rustup component list --installed | grep -qx rust-src || rustup component add rust-src
} >&2
echo "$tools/ziglang/zig"
