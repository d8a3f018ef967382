# shellcheck shell=bash
# What scripts that make a Debian of their own share: run.sh, build.sh, vagrant.sh and tests/places.sh.

# shellcheck disable=SC2034 # for those scripts
declare -A codenames=([12]=bookworm [13]=trixie)

die() { # die STATUS SENTENCE
    echo "${0##*/}: $2" >&2
    exit "$1"
}

inside() { # inside ROOT COMMAND: run a shell command in a root, with its own mounts and processes
    # shellcheck disable=SC2016 # expanded inside
    unshare --mount --pid --fork --kill-child --propagation private bash -euc '
        mount --bind "$1" "$1"; cd "$1"
        mount --rbind /dev dev; mount -t proc proc proc; mount -t sysfs sys sys; mount -t tmpfs run run
        wheels=${PIP_FIND_LINKS-}
        if [ -d "$wheels" ]; then mkdir -p ".$wheels"; mount --bind "$wheels" ".$wheels"; fi
        pivot_root . mnt; umount -l /mnt; cd /
        exec bash -euc "$2"' inside "$1" "$2"
}

boots_with_kvm() { # boots_with_kvm IMAGES: whether kvm comes as far as the kernel's first lines within 20 s
    [ -w /dev/kvm ] || return 1
    timeout 20 qemu-system-x86_64 -accel kvm -cpu host -m 512 -display none -no-reboot -kernel "$1/vmlinuz" \
        -append "console=ttyS0 panic=-1" -serial stdio -nic none </dev/null 2>/dev/null | grep -q "panic - not syncing"
}
