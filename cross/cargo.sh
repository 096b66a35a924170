#!/usr/bin/env bash
# cargo for another machine: cross/cargo.sh TARGET COMMAND [ARGUMENT...]
#
# C compiler, linker and libc are zig's. std is built from its source with the stable
# compiler (RUSTC_BOOTSTRAP): without its unwind tables and for size it is a quarter
# smaller, and on 32-bit machines its libc has a time_t of 4 bytes, which ends in 2038.
# Tests run under qemu-user.
#
# --plain before TARGET is stable Rust alone, with the std and musl that rustup has
# ready-made; only ring's C is compiled by zig.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

plain=
if test "$1" = --plain; then
  plain=$1
  shift
fi
target=$1
shift
code=()
case $target in
  aarch64-unknown-linux-musl) ZIG_TARGET=aarch64-linux-musl ZIG_CPU=generic qemu=aarch64 ;;
  # Thumb-2 code is a quarter smaller; ARMv6 has no Thumb that can use the VFP. Code that
  # need not move saves 0.7 % more, and LLVM's outliner, which is off for ARMv7, 1.8 %.
  armv7-unknown-linux-musleabihf)
    ZIG_TARGET=arm-linux-musleabihf ZIG_CPU=generic+v7a+vfp3d16+thumb2 qemu=arm
    code=(-Ctarget-feature=+thumb-mode -Crelocation-model=static -Cllvm-args=-enable-machine-outliner=always)
    ;;
  arm-unknown-linux-musleabihf)
    ZIG_TARGET=arm-linux-musleabihf ZIG_CPU=arm1176jzf_s qemu=arm
    code=(-Crelocation-model=static)
    ;;
  riscv64gc-unknown-linux-musl) ZIG_TARGET=riscv64-linux-musl ZIG_CPU=generic_rv64+m+a+f+d+c qemu=riscv64 ;;
  x86_64-unknown-linux-musl)
    ZIG_TARGET=x86_64-linux-musl ZIG_CPU=x86_64 qemu=x86_64
    code=(-Crelocation-model=static)
    ;;
  *) echo "cross/cargo.sh: $target: not a target of this script" >&2; exit 2 ;;
esac
ZIG=$("$root/cross/setup.sh")
export ZIG ZIG_TARGET ZIG_CPU
export ZIG_GLOBAL_CACHE_DIR=${ZIG%/*}/cache ZIG_LOCAL_CACHE_DIR=${ZIG%/*}/cache

name=${target//-/_}
upper=$(tr a-z A-Z <<<"$name")
export "CC_$name=$root/cross/zig-cc" "AR_$name=$root/cross/zig-ar"
# GNU ld would pad the file by 54 KB.
export "CARGO_TARGET_${upper}_LINKER=rust-lld"
export "CARGO_TARGET_${upper}_RUNNER=qemu-$qemu-static" NODELET_EMULATOR=qemu-$qemu-static

if test "$plain"; then
  rustup target add "$target" >&2
else
  # zig compiles musl and what it needs when it links a program, and tells where it is.
  # Not for size: its small memcpy() goes byte by byte, which was 42 % of what a renewal
  # takes in user space on arm64; the fast one makes the binary no larger.
  # Without debug information, which has the names of this machine's folders.
  libc=${ZIG%/*}/$target-O2-bare
  if ! test -d "$libc"; then
    new=$(mktemp -d "$libc.XXXXXX")
    echo 'int main(void) { return 0; }' >"$new/main.c"
    "$root/cross/zig-cc" -O2 -static -lunwind -v -o "$new/main" "$new/main.c" 2>&1 |
      tail -1 | tr ' ' '\n' | grep -E '/(crt1\.o|lib[a-z_]*\.a)$' | xargs cp -t "$new"
    for file in "$new"/*.[ao]; do "$root/cross/objcopy" --strip-debug "$file"; done
    mv -T "$new" "$libc" || test -d "$libc"
  fi
  flags=(-Clink-self-contained=no -Ctarget-feature=+crt-static "${code[@]}" "-Lnative=$libc"
    "-Clink-arg=$libc/crt1.o" -Clink-arg=-lc -Clink-arg=-lzigc -Clink-arg=-lcompiler_rt)
  # Cargo wants them apart by this byte: a path among them may have spaces.
  printf -v joined '\x1f%s' "${flags[@]}"
  joined=${CARGO_ENCODED_RUSTFLAGS-}$joined
  export CARGO_ENCODED_RUSTFLAGS=${joined#$'\x1f'}
  export RUSTC_BOOTSTRAP=1 RUST_LIBC_UNSTABLE_MUSL_V1_2_3=1
fi

cd "$root"
exec cargo "$1" --target "$target" "${@:2}"
