#!/usr/bin/env bash
# Runs cargo for another target: cross/cargo.sh [--plain] TARGET COMMAND [ARGUMENT...]
#
# C compiler, linker and libc are zig's. std is built from source with the stable compiler
# (RUSTC_BOOTSTRAP): without unwind tables and for size the binary is a quarter smaller. The
# ready-made std of 32-bit targets also has a time_t of 4 bytes, which overflows in 2038. The rebuilt
# one still reads the clock so; nodelet's own libc has 8 bytes (src/os/clock.rs). Tests run under
# qemu-user.
#
# --plain uses stable Rust with the ready-made std and musl of rustup; zig compiles only ring's C
# code.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

plain=
if test "$1" = --plain; then
  plain=$1
  shift
fi
target=$1
shift
# rustc warns that a target feature is unstable. The warning is no lint, so only -Awarnings silences
# it; clippy and the three targets without such a feature report the warnings of the code.
code=()
case $target in
  # Inline atomics save 2 KB: a single thread needs no choice between LSE and LL/SC at run time.
  aarch64-unknown-linux-musl)
    ZIG_TARGET=aarch64-linux-musl ZIG_CPU=generic qemu=aarch64
    code=(-Ctarget-feature=-outline-atomics -Awarnings)
    ;;
  # Thumb-2 code is a quarter smaller; Thumb on ARMv6 cannot use the VFP. A static relocation
  # model saves another 0.7 %, and LLVM's outliner, which is off by default for ARMv7, 1.8 %.
  armv7-unknown-linux-musleabihf)
    ZIG_TARGET=arm-linux-musleabihf ZIG_CPU=generic+v7a+vfp3d16+thumb2 qemu=arm
    code=(-Ctarget-feature=+thumb-mode -Awarnings -Crelocation-model=static
      -Cllvm-args=-enable-machine-outliner=always)
    ;;
  arm-unknown-linux-musleabihf)
    ZIG_TARGET=arm-linux-musleabihf ZIG_CPU=arm1176jzf_s qemu=arm
    code=(-Crelocation-model=static)
    ;;
  riscv64gc-unknown-linux-musl)
    ZIG_TARGET=riscv64-linux-musl ZIG_CPU=generic_rv64+m+a+f+d+c qemu=riscv64
    ;;
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
# GNU ld pads the file by 54 KB.
export "CARGO_TARGET_${upper}_LINKER=rust-lld"
export "CARGO_TARGET_${upper}_RUNNER=qemu-$qemu-static" NODELET_EMULATOR=qemu-$qemu-static

if test "$plain"; then
  rustup target add "$target" >&2
else
  # zig compiles musl when it links a program, and -v prints the paths of the libraries.
  # -O2, because memcpy() of -Os copies single bytes: that was 42 % of the user time of a renewal
  # on arm64. The binary does not grow.
  # Debug information is removed because it contains the names of this machine's folders.
  libc=${ZIG%/*}/$target-O2
  if ! test -d "$libc"; then
    new=$(mktemp -d "$libc.XXXXXX")
    echo 'int main(void) { return 0; }' >"$new/main.c"
    linker=$("$root/cross/zig-cc" -O2 -static -lunwind -v -o "$new/main" "$new/main.c" 2>&1 |
      tail -1)
    # The arguments are not quoted. The path of the cache may contain blanks; names in it do not.
    while IFS= read -r path; do
      path=${path%% *}
      case $path in
        /*/crt1.o | /*/lib*.a) cp "$ZIG_GLOBAL_CACHE_DIR$path" "$new" ;;
      esac
    done <<<"${linker//"$ZIG_GLOBAL_CACHE_DIR"/$'\n'}"
    for file in "$new"/*.[ao]; do "$root/cross/objcopy" --strip-debug "$file"; done
    mv -T "$new" "$libc" || test -d "$libc"
  fi
  flags=(-Clink-self-contained=no -Ctarget-feature=+crt-static "${code[@]}" "-Lnative=$libc"
    "-Clink-arg=$libc/crt1.o" -Clink-arg=-lc -Clink-arg=-lzigc -Clink-arg=-lcompiler_rt)
  # Cargo's separator is 0x1f, because paths may contain spaces.
  printf -v joined '\x1f%s' "${flags[@]}"
  joined=${CARGO_ENCODED_RUSTFLAGS-}$joined
  export CARGO_ENCODED_RUSTFLAGS=${joined#$'\x1f'}
  export RUSTC_BOOTSTRAP=1 RUST_LIBC_UNSTABLE_MUSL_V1_2_3=1
fi

cd "$root"
exec cargo "$1" --target "$target" "${@:2}"
