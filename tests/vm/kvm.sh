# shellcheck shell=bash
boots_with_kvm() { # boots_with_kvm IMAGES: whether kvm comes as far as the kernel's first lines within 20 s
    [ -w /dev/kvm ] || return 1
    timeout 20 qemu-system-x86_64 -accel kvm -cpu host -m 512 -display none -no-reboot -kernel "$1/vmlinuz" \
        -append "console=ttyS0 panic=-1" -serial stdio -nic none </dev/null 2>/dev/null | grep -q "panic - not syncing"
}
