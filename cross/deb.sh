#!/usr/bin/env bash
# Builds Debian packages: cross/deb.sh [ARCHITECTURE...]
#
# Writes dist/nodelet_VERSION_ARCHITECTURE.deb for the given architectures (default: arm64, armhf
# and amd64). armv6 is armhf for Raspberry Pi 1 and Zero. Runs cross/build.sh for each.
set -euo pipefail
cd "$(dirname "$0")/.."

test $# -gt 0 || set -- arm64 armhf amd64
version=$(sed -n '1s/^nodelet (\(.*\)) .*/\1/p' cross/debian/changelog)
if ! grep -qx "version = \"${version%-*}\"" Cargo.toml; then
  echo "cross/deb.sh: cross/debian/changelog: starts with $version, which Cargo.toml has not" >&2
  exit 1
fi
changed=$(date -d "$(sed -n '/^ -- /{s/.*>  //p;q}' cross/debian/changelog)" +%s)

manual=$(mktemp)
trap 'rm -f "$manual"' EXIT
date=$(LC_ALL=C date -u -d "@$changed" +'%B %-d, %Y')
cargo run --quiet --locked --example flags -- manual "$date" >"$manual"

for architecture; do
  debian=$architecture
  case $architecture in
    arm64) target=aarch64-unknown-linux-musl ;;
    armhf) target=armv7-unknown-linux-musleabihf ;;
    armv6) target=arm-unknown-linux-musleabihf debian=armhf ;;
    amd64) target=x86_64-unknown-linux-musl ;;
    riscv64) target=riscv64gc-unknown-linux-musl ;;
    *) echo "cross/deb.sh: $architecture: not an architecture of this script" >&2; exit 2 ;;
  esac
  # Its date of build is that of the commit: a board without a clock starts there.
  cross/build.sh "$target"

  tree=$(mktemp -d)
  trap 'rm -rf "$manual" "$tree"' EXIT
  # install sets the modes, independent of umask and checkout.
  place() { install -D -m "$1" "$2" "$tree/$3"; }
  place 755 "dist/$target/nodelet" usr/bin/nodelet
  for file in systemd/*; do
    case $file in
      *.service | *.socket | *.path) place 644 "$file" "usr/lib/systemd/system/${file##*/}" ;;
      *.default) place 644 "$file" "etc/default/$(basename "$file" .default)" ;;
      *.yaml) place 644 "$file" "usr/share/doc/nodelet/examples/${file##*/}" ;;
      */dracut)
        for module in "$file"/*/*; do
          place 755 "$module" "usr/lib/dracut/modules.d/${module#"$file"/}"
        done
        ;;
    esac
  done
  doc=$tree/usr/share/doc/nodelet
  mkdir -p "$doc"
  cp cross/debian/copyright "$doc/copyright"
  cross/third-party.py licenses "$target" >>"$doc/copyright"
  place 644 cross/debian/lintian-overrides usr/share/lintian/overrides/nodelet
  place 644 cross/debian/changelog usr/share/doc/nodelet/changelog.Debian
  place 644 CHANGELOG.md usr/share/doc/nodelet/changelog
  place 644 "$manual" usr/share/man/man8/nodelet.8
  gzip -9n "$doc/changelog.Debian" "$doc/changelog" "$tree/usr/share/man/man8/nodelet.8"

  mkdir -m 755 "$tree/DEBIAN"
  place 755 cross/debian/postinst DEBIAN/postinst
  place 755 cross/debian/prerm DEBIAN/prerm
  case $architecture in
    armhf | armv6)
      place 755 cross/debian/preinst DEBIAN/preinst
      sed -i "s/@CPU@/$architecture/" "$tree/DEBIAN/preinst"
      ;;
  esac
  place 755 cross/debian/postrm DEBIAN/postrm
  # KiB of the files alone: the size of a folder depends on the file system and on coreutils.
  size=$(($(find "$tree" -path "$tree/DEBIAN" -prune -o -type f -printf '%s + ') 1023))
  size=$((size / 1024))
  sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$debian/; s/@SIZE@/$size/" \
    cross/debian/control >"$tree/DEBIAN/control"
  if test -d "$tree/etc"; then
    (cd "$tree" && find etc -type f | sed 's|^|/|' | LC_ALL=C sort >DEBIAN/conffiles)
  fi
  (cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  find "$tree" -type d -exec chmod 755 {} +
  chmod 644 "$tree"/DEBIAN/[cm]* "$doc/copyright"
  # All files of the archive have this date.
  SOURCE_DATE_EPOCH=$changed dpkg-deb --root-owner-group -Zxz --build "$tree" "dist/nodelet_${version}_$architecture.deb"
  rm -rf "$tree"
done
(cd dist && sha256sum -- *.deb >SHA256SUMS)
