#!/usr/bin/env bash
# Builds what tests/vm/run.sh boots, as root, from the Debian mirror of this machine's apt configuration:
#
#   build.sh FOLDER CODENAME [ARCHITECTURE]
#                       FOLDER/bare.img   that Debian with its kernel and systemd, and nothing of Railyard
#                       FOLDER/ready.img  the same after scripts/setup.sh
#                       FOLDER/vmlinuz, FOLDER/initrd
#
# A second call builds again only what is older than the files that determine it.
set -euo pipefail
umask 022
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
project=$(dirname "$(dirname "$here")")
# shellcheck disable=SC1091 # only -x follows it
. "$here/shared.sh"
work=$(realpath -ms "${1:?a folder to build in}")
codename=${2:?the codename of a Debian release}
architecture=${3:-amd64}
image_size=6G
# The boxes of the Vagrantfile have these beside Debian's own minimum.
packages=initramfs-tools,kmod,udev,systemd-sysv,libpam-systemd,dbus,sudo,ca-certificates,iproute2,procps
packages+=,linux-image-$architecture

fingerprint() { # fingerprint FILE...: hash of everything that determines an image
    (cd "$project" && echo "$codename $image_size $packages" && cat tests/vm/{build,shared}.sh "$@") |
        sha256sum | cut -d ' ' -f 1
}

is_built() { # is_built NAME HASH
    [ -f "$work/$1.img" ] && [ "$(cat "$work/$1.hash" 2>/dev/null)" = "$2" ]
}

mirror() { # the first mirror of apt's configuration
    local found
    found=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/*.sources 2>/dev/null || true)
    [ -n "$found" ] || found=$(awk '/^deb / {print $2; exit}' /etc/apt/sources.list 2>/dev/null || true)
    [ -n "$found" ] || die 3 "no mirror in /etc/apt; add one to /etc/apt/sources.list"
    echo "$found"
}

emulate_programs() { # lets the kernel start programs of arm64 until this script ends
    local folder=/proc/sys/fs/binfmt_misc
    [ ! -e $folder/qemu-aarch64 ] || return 0 # with systemd the package qemu-user-static has done so
    mount -t binfmt_misc binfmt_misc $folder
    trap "echo -1 >$folder/qemu-aarch64; umount $folder" EXIT
    cat /usr/lib/binfmt.d/qemu-aarch64.conf >$folder/register
}

to_image() { # to_image ROOT NAME HASH: in a new file, since a machine may run from the old one
    rm -f "$work/$2.hash" "$work/$2.new"
    mke2fs -q -t ext4 -d "$1" "$work/$2.new" $image_size >/dev/null
    mv "$work/$2.new" "$work/$2.img"
    echo "$3" >"$work/$2.hash"
}

build_bare() { # build_bare HASH
    local root=$work/bare file
    rm -rf --one-file-system "$root"
    debootstrap --arch="$architecture" --variant=minbase --include="$packages" "$codename" "$root" "$(mirror)" \
        >"$work/debootstrap.log" 2>&1 ||
        die 3 "debootstrap failed; its output is in $work/debootstrap.log"
    # How this machine reaches its package mirrors.
    cp -r /etc/apt/sources.list.d/. "$root/etc/apt/sources.list.d/"
    cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
    cp /etc/apt/sources.list "$root/etc/apt/sources.list" 2>/dev/null || : >"$root/etc/apt/sources.list"
    # shellcheck disable=SC1091 # not ours to check
    sed -i "s/\b$(. /etc/os-release && echo "$VERSION_CODENAME")\b/$codename/g" \
        "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/*
    for file in /etc/pip.conf /etc/hosts; do
        [ ! -e $file ] || cp $file "$root$file"
    done
    cp -r /etc/ssl/certs "$root/etc/ssl/"
    cp -rL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
    install -m 755 "$here/init.sh" "$root/init.sh"
    install -m 644 "$here/checks.service" "$root/etc/systemd/system/checks.service"
    # The user of a Vagrant box, and its network: one card with DHCP.
    inside "$root" '
        useradd --create-home --shell /bin/bash vagrant
        echo "vagrant ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/vagrant
        echo railyard >/etc/hostname
        printf "[Match]\nName=en*\n[Network]\nDHCP=yes\n" >/etc/systemd/network/card.network
        systemctl enable -q systemd-networkd
        systemctl enable -q checks.service
        systemctl disable -q apt-daily.timer apt-daily-upgrade.timer
        mkdir -p /railyard && chown vagrant: /railyard'
    cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
    cp "$root"/boot/initrd.img-* "$work/initrd"
    to_image "$root" bare "$1"
}

build_ready() { # build_ready HASH
    local root=$work/ready
    rm -rf --one-file-system "$root"
    cp -a "$work/bare" "$root"
    git -C "$project" archive HEAD | tar -x -C "$root/railyard"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # start no service here
    chmod 755 "$root/usr/sbin/policy-rc.d"
    inside "$root" 'chown -R vagrant: /railyard; cd /railyard; RAILYARD_SYSTEM_OVS=no scripts/setup.sh' \
        >"$work/setup.log" 2>&1 || die 3 "scripts/setup.sh failed; its output is in $work/setup.log"
    # Each machine gets the project anew: its compiled modules hold by content, as the times of its files do not.
    inside "$root" 'cd /railyard
        .venv/bin/python -m compileall -q --invalidation-mode checked-hash -x "\.venv|data" .' \
        >>"$work/setup.log" 2>&1 || die 3 "the modules could not be compiled; its output is in $work/setup.log"
    rm "$root/usr/sbin/policy-rc.d"
    to_image "$root" ready "$1"
}

main() {
    local hash
    mkdir -p "$work"
    exec 9<"$work"
    flock 9 # of two builds at once the second one waits and finds everything built
    [ "$architecture" = "$(dpkg --print-architecture)" ] || emulate_programs
    hash=$(fingerprint tests/vm/init.sh tests/vm/checks.service)
    is_built bare "$hash" || build_bare "$hash"
    hash=$(fingerprint tests/vm/init.sh tests/vm/checks.service \
        scripts/setup.sh scripts/requirements.txt setup.cfg pyproject.toml)
    is_built ready "$hash" || build_ready "$hash"
}

main
