#!/usr/bin/env bash
# Writes for order.ld, to this folder or another one: loop.ld, the functions of the loop and of the
# start, in their order; and serve.ld, what `nodelet serve` runs beside them.
#
#   cross/build.sh x86_64-unknown-linux-musl aarch64-unknown-linux-musl
#   cross/order.sh [FOLDER]
#
# Runs both binaries for 130 s under qemu-user (Debian: qemu-user-static) beside the API double and
# notes which functions run once the Node is registered, a watch of it included; then those of the
# start, whose pages stay resident as well; then those of the port while two tests scrape it, with a
# token and with certificates. What one compiler inlines is a function for the other.
# Mangled names contain hashes, which differ between targets and compilers: patterns replace them, so
# that the list is good for all targets.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1-cross}
architectures=(x86_64 aarch64)
binary() { echo "$PWD/target/$1-unknown-linux-musl/release/nodelet"; }
for architecture in "${architectures[@]}"; do
  command -v "qemu-$architecture-static" >/dev/null || {
    echo "cross/order.sh: no qemu-$architecture-static; install qemu-user-static" >&2
    exit 1
  }
  test -x "$(binary "$architecture")" || {
    echo "cross/order.sh: no $(binary "$architecture"); run cross/build.sh first" >&2
    exit 1
  }
done

folder=$(mktemp -d)
# In process groups of their own, because the demo starts an agent.
set -m
trap 'for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done; rm -rf "$folder"' EXIT
cargo build --quiet --locked --example demo
cargo test --quiet --locked --no-run --test agent
TMPDIR=$folder target/debug/examples/demo --stay >"$folder/demo" 2>&1 &
demo=$!
until kubeconfig=$(grep -o '[^ ]*/admin.conf' "$folder/demo"); do
  kill -0 $demo || { cat "$folder/demo" >&2; exit 1; }
  sleep 0.1
done

# In the place of systemd.
python3 -c 'import socket, sys
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(sys.argv[1])
while True: notify.recv(4096)' "$folder/notify" &

# trace ARCHITECTURE: writes all of its functions to $folder/ARCHITECTURE/all.
#
# A block of code is one line of the log, which ends with the name of the function, or with "]" where
# it has none. Each wait calls ppoll; the first ten belong to the start. Flags and environment are
# those of the unit on a board that joined. The second run is a restart: it finds its Node, its Lease
# and its certificate, and the file of its boots in a folder that was empty before.
trace() {
  local own=$folder/$1 traced functions seconds
  # All of a trace in one process group.
  set +m
  traced=$(binary "$1")
  mkdir -p "$own/root"
  mkfifo "$own/log" "$own/port-log"
  awk '$NF == "_start" { waits = 0 }
    $NF ~ /4poll5ppoll/ { waits++ }
    /^Trace/ && $NF !~ /]$/ && !seen[$NF, waits > 10]++ {
      print (waits > 10 ? "loop" : "start"), $NF
    }' <"$own/log" >"$own/functions" &
  functions=$!
  exec 3>"$own/log"
  for seconds in 130 15; do
    NOTIFY_SOCKET=$folder/notify WATCHDOG_USEC=20000000 RUNTIME_DIRECTORY=$own \
      STATE_DIRECTORY=$own/root timeout --foreground $seconds \
      "qemu-$1-static" -cpu max -d exec,nochain -D "$own/log" "$traced" --rotate-certificates \
      --kubeconfig="$kubeconfig" --hostname-override="traced-${1%%_*}" --root-dir="$own/root" &&
      return 1 || test $? -eq 124
  done
  exec 3>&-
  wait $functions

  # The tests start this program in the place of nodelet, as an agent and as the port.
  cat >"$own/nodelet" <<END
#!/bin/sh
test "\$2" = serve || exec $(binary x86_64) "\$@"
exec qemu-$1-static -cpu max -d exec,nochain -D "$own/port-log" "$traced" "\$@"
END
  chmod +x "$own/nodelet"
  awk '/^Trace/ && $NF !~ /]$/ && !seen[$NF]++ { print "serve", $NF }' \
    <"$own/port-log" >>"$own/functions" &
  functions=$!
  exec 3>"$own/port-log"
  NODELET=$own/nodelet cargo test --quiet --locked --test agent -- --test-threads 1 \
    serve::endpoints serve::access::a_client_certificate >"$own/tests" 2>&1 3>&- || {
    cat "$own/tests" >&2
    return 1
  }
  exec 3>&-
  wait $functions

  # A log in another format, or without the functions' names.
  for part in loop serve; do
    test "$(grep -c "^$part" "$own/functions")" -gt 500 || {
      echo "cross/order.sh: the log of qemu-$1-static names too few functions: $part" >&2
      return 1
    }
  done

  # Functions with the same code become one function with several names: the log has one of them, and
  # the linker orders by another one. The crate that a generic function was compiled for, at the end
  # of its name, is the first one that needs it, which differs from build to build. A cold function's
  # section is .text.unlikely.NAME.
  nm --defined-only "$traced" |
    awk 'NR == FNR { at[$3] = $1; names[$1] = names[$1] " " $3; next }
      function add(name) {
        if (match(name, /Cs[0-9A-Za-z]+_[0-9]+[a-z_0-9]+$/)) {
          crate = substr(name, RSTART); sub(/^Cs[0-9A-Za-z]+_/, "", crate)
          if (length(crate) == length(crate + 0) + crate) name = substr(name, 1, RSTART - 1) "Cs*"
        }
        print $1, name
      }
      { add($2); count = split(names[at[$2]], others, " ")
        for (i = 1; i <= count; i++) if (others[i] != $2) add(others[i]) }' \
      - "$own/functions" >"$own/all"
}
traces=()
for architecture in "${architectures[@]}"; do
  trace "$architecture" &
  traces+=($!)
done
for job in "${traces[@]}"; do wait "$job"; done

# patterns PART...: Hashes of crates, references within a name, numbers of copies, the version of ring.
patterns() {
  local part
  for part; do sed -n "s/^$part //p" "$folder"/*/all; done |
    sed -E 's/Cs[0-9A-Za-z]+_/Cs*_/g; s/B[0-9A-Za-z]{1,2}_/B*_/g; s/\.(llvm\.)?[0-9]+$/*/
      s/^ring_core_[0-9_]+__/ring_core_*__/; s/.*/*(.text*.&)/' |
    awk '!/OUTLINED_FUNCTION|\$[dx]/ && !seen[$0]++'
}
patterns loop start >"$folder/loop.ld"
patterns serve | grep -Fxv -f "$folder/loop.ld" >"$folder/serve.ld"
cp "$folder/loop.ld" "$folder/serve.ld" "$out"
