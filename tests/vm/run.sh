#!/usr/bin/env bash
# Boots a Debian 12 with its own kernel (Open vSwitch's kernel datapath, netem) in a virtual machine and runs checks in
# it: the committed state of this checkout, as root there, and root here. On request only; see CONTRIBUTING.md.
#
#   tests/vm/run.sh                   all checks for the machine without systemd
#   tests/vm/run.sh --init systemd    those for the machine that a user gets by "vagrant up"
#   tests/vm/run.sh --init systemd --bare     the same, before the set-up: its packages come over the network
#   tests/vm/run.sh --only NAME       this check alone (may be given several times)
#   tests/vm/run.sh --list            the checks, changing nothing
#   --work FOLDER    where images and results are kept (default /var/tmp/railyard-vm; 4 GB)
#   --accel NAME     kvm, tcg (software emulation) or auto (kvm where it boots the machine; the default)
#
# Prints a table and keeps it, with the log of each check, in FOLDER/results-DATE-TIME. Exit status 0 if all are right, 1
# if not. Software emulation is some 20 times slower than a machine, so the clock of the virtual machine runs slower by
# --slow N (default 5; with KVM 1; by libfaketime): no limit of time in it is for the emulator.
set -euo pipefail
umask 022
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
project=$(dirname "$(dirname "$here")")
work=/var/tmp/railyard-vm
image=ready
init=script
accel=auto
slow=
faketime=/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1
only=()
machine=

die() { # die STATUS SENTENCE
    echo "run.sh: $2" >&2
    exit "$1"
}

setting() { # setting FILE NAME: the value of "# NAME: VALUE" in a check
    sed -n "s/^# $2: //p" "$1" | head -n 1
}

checks() { # the files of the checks for this init
    local file
    for file in "$here"/checks/*.sh; do
        [ "$(setting "$file" init)" != "$init" ] || echo "$file"
    done
}

list() {
    local file
    for file in "$here"/checks/*.sh; do
        printf '%-8s %-18s %s\n' "$(setting "$file" init)" "$(basename "$file" .sh)" "$(setting "$file" shows)"
    done
}

options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --list)
                list
                exit
                ;;
            -h | --help)
                sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
                exit
                ;;
            --bare)
                image=bare
                shift
                continue
                ;;
            --init | --only | --work | --accel | --slow) [ $# -gt 1 ] || die 2 "$1 needs a value; see --help" ;;
            *) die 2 "unknown option $1; see --help" ;;
        esac
        case $1 in
            --init) init=$2 ;;
            --only) only+=("$2") ;;
            --work) work=$(realpath -ms "$2") ;;
            --accel) accel=$2 ;;
            --slow) slow=$2 ;;
        esac
        shift 2
    done
    [[ $slow =~ ^([1-9][0-9]*)?$ ]] || die 2 "--slow is a whole number, not $slow"
    case $init in script | systemd) ;; *) die 2 "--init is script or systemd, not $init" ;; esac
    [ "$init-$image" != script-bare ] || die 2 "--bare needs --init systemd, which has a network"
    case $accel in kvm | tcg | auto) ;; *) die 2 "--accel is kvm, tcg or auto, not $accel" ;; esac
}

missing_packages() { # those of programs that building or running the machine needs
    local need
    for need in debootstrap:debootstrap mke2fs:e2fsprogs git:git qemu-system-x86_64:qemu-system-x86; do
        command -v "${need%:*}" >/dev/null || echo "${need#*:}"
    done
    [ "$slow" = 1 ] || [ "$accel$slow" = kvm ] || [ -e "$faketime" ] || echo libfaketime
}

job() { # job FOLDER: what the machine gets, which of it to run, and where it writes
    local file name
    mkdir -p "$1/checks" "$1/results"
    git -C "$project" archive HEAD >"$1/project.tar"
    cp "$here/guest.sh" "$here/common.sh" "$1/"
    if [ ${#only[@]} -eq 0 ]; then
        mapfile -t only < <(checks | xargs -n 1 basename -s .sh)
    fi
    for name in "${only[@]}"; do
        file=$here/checks/$name.sh
        [ -f "$file" ] || die 2 "there is no check $name; see --list"
        [ "$(setting "$file" init)" = "$init" ] || die 2 "check $name is for --init $(setting "$file" init)"
        cp "$file" "$1/checks/"
    done
    printf '%s\n' "${only[@]}" >"$1/names"
}

boots_with_kvm() { # whether kvm comes as far as the kernel's first lines within 20 s
    [ -w /dev/kvm ] || return 1
    timeout 20 qemu-system-x86_64 -accel kvm -cpu host -m 512 -display none -no-reboot -kernel "$work/vmlinuz" \
        -append "console=ttyS0 panic=-1" -serial stdio -nic none </dev/null 2>/dev/null | grep -q "panic - not syncing"
}

boot() { # boot FOLDER: runs the machine until it switches itself off
    local clock=() init_path=/init.sh network=(-nic none) processor=(-accel "tcg,thread=multi" -cpu max)
    if [ "$init" = systemd ]; then
        init_path=/sbin/init network=(-nic "user,model=virtio-net-pci")
    fi
    [ "$accel" != auto ] || ! boots_with_kvm || accel=kvm
    if [ "$accel" = kvm ]; then
        processor=(-accel kvm -cpu host) slow=${slow:-1}
    fi
    [ "${slow:=5}" = 1 ] || clock=(env "LD_PRELOAD=$faketime" "FAKETIME=+0 x$(awk "BEGIN {print 1 / $slow}")")
    # Changes of the disk are thrown away.
    "${clock[@]}" qemu-system-x86_64 "${processor[@]}" -m 4096 -smp 2 -display none -no-reboot \
        -kernel "$work/vmlinuz" -initrd "$work/initrd" \
        -append "console=ttyS0 root=/dev/vda rw init=$init_path panic=-1 mitigations=off tsc=reliable no_timer_check" \
        -drive "file=$work/$image.img,if=virtio,format=raw,snapshot=on" \
        -virtfs "local,path=$1,mount_tag=job,security_model=none" \
        "${network[@]}" -serial "file:$1/results/console" </dev/null &
    machine=$!
    wait $machine
    machine=
}

follow() { # follow FOLDER: shows the table as it grows, until it is killed
    exec tail -n +1 -s 1 -F "$1/results/table" 2>/dev/null
}

main() {
    local folder state=0 reader name missing
    options "$@"
    [ "$EUID" -eq 0 ] || die 3 "building the machine needs root; run: sudo tests/vm/run.sh"
    missing=$(missing_packages)
    [ -z "$missing" ] || die 3 "packages are missing; run: apt-get install ${missing//$'\n'/ }"
    "$here/build.sh" "$work"
    folder=$(mktemp -d "$work/results-$(date -u +%Y%m%d-%H%M%S)-XXX")
    chmod 755 "$folder"
    job "$folder"
    follow "$folder" &
    reader=$!
    # shellcheck disable=SC2064 # the ids of now
    trap "kill $reader 2>/dev/null || true; [ -z \"\$machine\" ] || kill \"\$machine\"" EXIT
    trap 'exit 1' INT TERM HUP
    boot "$folder" || state=$?
    sleep 1.5 # for the reader
    mv "$folder"/results/* "$folder/"
    rm -r "$folder/results" "$folder/checks" "$folder"/{project.tar,guest.sh,common.sh}
    for name in "${only[@]}"; do
        grep -q "^ok *$name " "$folder/table" || state=1
    done
    [ -f "$folder/ended" ] || echo "run.sh: the machine ended before its checks did; see $folder/console" >&2
    echo "run.sh: the logs are in $folder"
    return "$state"
}

main "$@"
