#!/bin/bash
# dracut module of nodelet: copy this folder to /usr/lib/dracut/modules.d and set
#
#   add_dracutmodules+=" nodelet network "     in /etc/dracut.conf.d/nodelet.conf
#   rd.neednet=1 ip=dhcp                       on the kernel's command line
#
# or use another network module. It copies from this machine: the binary, the unit with its
# drop-ins, /etc/default/nodelet and nodelet-join, the credentials /etc/credstore/nodelet.*, the
# certificate in use, from the folder that --root-dir or --cert-dir of these flags names, the files
# that --config and --config-dir name, and the host name. A kubeconfig that the flags name, as that of a bootstrap, is not copied. Nor is a
# certificate that is renewed later: make the initramfs anew each month (dracut --force), because
# one of a year is renewed 36 days before its end or earlier. Make it anew also after `nodelet join
# --force`, and after `nodelet reset` or `apt purge` without this module: the initramfs keeps the
# former credentials, and its agent uses them at the next boot.
# The machine-id (%m) differs in the initramfs unless dracut has hostonly=yes.
# The agent runs from the initramfs until the root is switched, so the board is Ready while its
# root waits for a passphrase or is repaired. Then the unit of the root starts.

# Only on request (255), because it puts credentials into the initramfs.
check() {
    require_binaries nodelet || return 1
    return 255
}

# Needs dracut 056 or newer.
depends() {
    echo systemd-initrd
}

# The value of a flag of the unit. The last one wins.
nodelet_flag() {
    cat "$root"/etc/default/nodelet-join "$root"/etc/default/nodelet 2>/dev/null |
        sed '/^[[:space:]]*[#;]/d' | tr -s "\"'\\\\= \t" '\n' |
        sed -n "/^--$1\$/{n;/^\//p;}" | tail -n 1
}

install() {
    local root=${dracutsysrootdir-} own=${systemdsystemconfdir:?} file state pki config
    local unit=$own/nodelet.service
    [[ -e $root$unit ]] || unit=${systemdsystemunitdir:?}/nodelet.service
    inst_multiple nodelet "$unit"
    inst_multiple -o /etc/default/nodelet /etc/default/nodelet-join /etc/hostname
    pki=$(nodelet_flag 'cert[-_]dir')
    state=$(nodelet_flag 'root[-_]dir')
    pki=${pki:-${state:-/var/lib/nodelet}/pki}
    # A link; dracut also installs the pair that it points to.
    inst_multiple -o "$pki/kubelet-client-current.pem"
    # The agent does not start without the file that --config names.
    config=$(nodelet_flag config)
    [[ -z $config ]] || inst_multiple -o "$config"
    config=$(nodelet_flag 'config[-_]dir')
    if [[ -n $config && -d $root$config ]]; then
        while read -r file; do
            inst_multiple -o "${file#"$root"}"
        done < <(find "$root$config" -name '*.conf')
    fi
    for file in "$root$own"/nodelet.service.d/*.conf "$root"/etc/credstore/nodelet.*; do
        # An interrupted join leaves a key, perhaps of another cluster.
        [[ $file != *.new ]] || continue
        inst_multiple -o "${file#"$root"}"
    done
    ${SYSTEMCTL:?} -q --root "${initdir:?}" add-wants initrd.target nodelet.service
}
