#!/usr/bin/env bash
# Writes order.ld, or another file, with the order of functions for the linker:
#
#   cross/build.sh x86_64-unknown-linux-musl
#   cross/order.sh [FILE]
#
# Runs that binary for 100 s under qemu-user (Debian: qemu-user-static) beside the API double and
# notes which functions run once the Node is registered, in their order. Mangled names contain
# hashes, which differ between targets and compilers: patterns replace them, so that the order is
# good for all targets.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1-cross/order.ld}
qemu=$(command -v qemu-x86_64-static)
traced=$PWD/target/x86_64-unknown-linux-musl/release/nodelet
test -x "$traced"

folder=$(mktemp -d)
# In a process group of its own, because the demo starts an agent.
set -m
trap 'kill -- -$demo -$functions 2>/dev/null || true; rm -rf "$folder"' EXIT
demo= functions=
cargo build --quiet --locked --example demo
TMPDIR=$folder target/debug/examples/demo --stay >"$folder/demo" 2>&1 &
demo=$!
until kubeconfig=$(grep -o '[^ ]*/admin.conf' "$folder/demo"); do
  kill -0 $demo || { cat "$folder/demo" >&2; exit 1; }
  sleep 0.1
done

# A block of code is one line of the log, which ends with the name of the function. Each wait calls
# ppoll; the first ten belong to the start.
mkfifo "$folder/log"
awk '$NF ~ /4poll5ppoll/ { waits++ } waits > 10 && NF > 3 && !seen[$NF]++ { print $NF }' \
  <"$folder/log" >"$folder/functions" &
functions=$!
timeout --foreground 100 "$qemu" -d exec,nochain -D "$folder/log" "$traced" \
  --kubeconfig="$kubeconfig" --hostname-override=traced && exit 1 || test $? -eq 124
wait $functions
# A log in another format, or without the functions' names.
test "$(wc -l <"$folder/functions")" -gt 500

{
  sed '/^SECTIONS/,$d' cross/order.ld
  echo 'SECTIONS {'
  echo '.text.loop : {'
  # Hashes of crates, references within a name, numbers of copies, the version of ring.
  sed -E 's/Cs[0-9A-Za-z]+_/Cs*_/g; s/B[0-9A-Za-z]{1,2}_/B*_/g; s/\.(llvm\.)?[0-9]+$/*/
    s/^ring_core_[0-9_]+__/ring_core_*__/; s/.*/*(.text.&)/' "$folder/functions" |
    awk '!seen[$0]++'
  echo '}'
  echo '}'
  echo 'INSERT BEFORE .text;'
  sed -n '/^\/\* What an agent mostly/,$p' cross/order.ld
} >"$folder/order.ld"
cp "$folder/order.ld" "$out"
