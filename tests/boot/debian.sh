# Debian's packages, of other architectures too, unpacked into a cache: sourced, not run.
#
# Needs $arch, as dpkg names it. apt gets a state folder of its own below $cache, so that
# this machine's dpkg knows nothing of it; its sources are this machine's, or those of
# $NODELET_APT_ETC instead of /etc/apt. What is fetched once is used again.
# shellcheck shell=sh
caches=${XDG_CACHE_HOME:-$HOME/.cache}/nodelet/boot
cache=$caches/$arch

debian_apt() {
  tool=$1
  shift
  "$tool" -qq -o APT::Architecture="$arch" -o APT::Architectures::="$arch" \
    -o Dir::Etc="${NODELET_APT_ETC:-/etc/apt}" -o Dir::State="$cache/state" \
    -o Dir::State::status="$cache/state/status" -o Dir::Cache="$cache" \
    -o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}

# unpack FOLDER ALONE PACKAGE...: below $cache/FOLDER the packages with what they depend
# on, and those of the list ALONE without; of a linux-image the one that it stands for.
# Scripts are not run.
unpack() (
  folder=$cache/$1 alone=$2
  shift 2
  if [ "$(cat "$folder.packages" 2>/dev/null)" = "$alone, $*" ]; then return; fi
  mkdir -p "$cache/state/lists/partial"
  : >>"$cache/state/status"
  # A source without this architecture is no harm as long as another has it.
  debian_apt apt-get update || true
  rm -rf "$folder" "$folder.debs"
  mkdir -p "$folder.debs/partial"
  debian_apt apt-get install --download-only --no-install-recommends \
    -o Dir::Cache::archives="$folder.debs" "$@" >/dev/null
  for package in $alone; do
    case $package in
      linux-image-*)
        package=$(debian_apt apt-cache depends "$package" |
          sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1) ;;
    esac
    (cd "$folder.debs" && debian_apt apt-get download "${package:?no kernel in the sources of apt}")
  done
  for package in "$folder.debs"/*.deb; do
    dpkg-deb --extract "$package" "$folder"
  done
  rm -r "$folder.debs"
  echo "$alone, $*" >"$folder.packages"
)

# modules FROM TO NAME...: kernel modules, decompressed, numbered in this order. Those
# that are built in have no file.
modules() {
  from=$1 to=$2 number=10
  shift 2
  mkdir -p "$to"
  for module in "$@"; do
    find "$from" -name "$module.ko*" | while read -r file; do
      case $file in
        *.xz) xz -dc "$file" ;;
        *) cat "$file" ;;
      esac >"$to/$number-$module.ko"
    done
    number=$((number + 1))
  done
}

# qemu COMMAND PACKAGE FILE: makes FILE a script that runs qemu's COMMAND out of PACKAGE,
# unpacked like the rest and not installed, which needs no root and moves no other package
# of this machine.
qemu() (
  command=$1 package=$2 file=$3
  arch=$(dpkg --print-architecture)
  cache=$caches/$arch
  unpack "$package" '' "$package"
  loader=$(find "$cache/$package" -type f -name 'ld-linux*.so.*' | head -n 1)
  libraries=$(find "$cache/$package" -name '*.so.*' -exec dirname {} + | sort -u | tr '\n' ':')
  cat >"$file" <<SCRIPT
#!/bin/sh
export QEMU_MODULE_DIR="$(echo "$cache/$package"/usr/lib/*-linux-*/qemu)"
exec "$loader" --library-path "$libraries" \\
  "$cache/$package/usr/bin/$command" -L "$cache/$package/usr/share/qemu" \\
  -L "$cache/$package/usr/share/seabios" "\$@"
SCRIPT
  chmod +x "$file"
)
