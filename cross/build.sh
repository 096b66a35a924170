#!/usr/bin/env bash
# Builds static release binaries, with the same bytes in any folder:
#
#   cross/build.sh [--plain] [TARGET...]     all five without a TARGET
#
# Writes dist/TARGET/nodelet (stripped), nodelet-TARGET.debug (its symbols, which gdb finds by
# .gnu_debuglink) and SHA256SUMS. --plain uses the ready-made std of rustup, as `cargo build
# --release` does, and writes below dist/plain/.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(
  aarch64-unknown-linux-musl
  armv7-unknown-linux-musleabihf
  arm-unknown-linux-musleabihf
  riscv64gc-unknown-linux-musl
  x86_64-unknown-linux-musl
)
plain=
if test "${1-}" = --plain; then
  plain=plain/
  shift
  # Without 32-bit targets: their ready-made std has a time_t of 4 bytes.
  targets=(aarch64-unknown-linux-musl x86_64-unknown-linux-musl)
fi
test $# -eq 0 || targets=("$@")

# Remap removes the names of the build folders from the file; cross/zig-cc does the same for C.
# The source path of a crate is then, for instance, ring-0.17.14/src/....
# A panic aborts the process, so unwind tables are omitted. --icf=all merges functions with
# identical code.
cargo fetch --locked --quiet
cargo=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
flags=(
  -Cforce-unwind-tables=no -Clink-arg=--no-eh-frame-hdr -Clink-arg=--icf=all
  "--remap-path-prefix=$sysroot/lib/rustlib/src/rust/=" "--remap-path-prefix=$PWD/="
)
for registry in "$cargo"/registry/src/*/; do flags+=("--remap-path-prefix=$registry="); done
# Keep symbols here; objcopy moves them to nodelet-TARGET.debug below.
export CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
export CARGO_TARGET_DIR=$PWD/target

# Cargo's separator is 0x1f, because paths may contain spaces.
printf -v joined '%s\x1f' "${flags[@]}"
export CARGO_ENCODED_RUSTFLAGS=${joined%$'\x1f'}

for target in "${targets[@]}"; do
  dist=dist/$plain$target
  mkdir -p "$dist"
  if test "$plain"; then
    cross/cargo.sh --plain "$target" build --release --locked
  else
    cross/cargo.sh "$target" build --release --locked \
      -Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size
  fi
  built=target/$target/release/nodelet
  debug=nodelet-$target.debug
  cross/objcopy --only-keep-debug "$built" "$dist/$debug"
  cross/objcopy --strip-all --remove-section=.comment "$built" "$dist/nodelet"
  (cd "$dist" && "$OLDPWD/cross/objcopy" --add-gnu-debuglink="$debug" nodelet &&
    sha256sum nodelet "$debug" >SHA256SUMS)
  ls -l "$dist/nodelet"
done
