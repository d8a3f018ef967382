#!/usr/bin/env bash
# Boots a Debian with its own kernel (Open vSwitch's kernel datapath, netem) in a
# virtual machine and runs checks in it: the committed state of this checkout, as
# root there, and root here. On request only; see CONTRIBUTING.md.
#
#   tests/vm/run.sh                  all checks for the machine without systemd
#   tests/vm/run.sh --init systemd   those for the machine of "vagrant up"
#   tests/vm/run.sh --init systemd --bare
#                        the same before the set-up, which then needs a network
#   tests/vm/run.sh --resume FOLDER  those of a folder of results that are not ok
#                        yet at this commit; without tests that have passed
#   tests/vm/run.sh --table FOLDER...   results as a table in Markdown
#   tests/vm/run.sh --list           the checks
#   --only NAME          this check alone (may be given several times)
#   --debian RELEASE     12 (kernel 6.1; the default) or 13 (kernel 6.12)
#   --arch NAME          amd64 (the default) or arm64, emulated unless --accel kvm
#   --work FOLDER        where images (4 GB a release) and results are kept
#                        (default /var/tmp/railyard-vm)
#   --accel NAME         kvm, tcg (software emulation), auto: kvm where it boots
#                        the machine (the default)
#
# Prints the results and keeps them, with the log of each check, in the folder
# results-DATE-TIME, also where it is interrupted. Exit status 0 if all are right,
# 1 if not. An emulated machine has one processor, whose clock counts instructions
# (4e9 a second, as this machine executes; idle it takes 4 seconds for one): it does
# not see how slow the emulation is, so no limit of time in it is for the emulator.
set -euo pipefail
umask 022
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
project=$(dirname "$(dirname "$here")")
# shellcheck disable=SC1091 # only -x follows it
. "$here/shared.sh"
work=/var/tmp/railyard-vm
debian=12
arch=amd64
emulator=(qemu-system-x86_64)
processor=max
programs=(qemu-system-x86_64:qemu-system-x86)
# The clock counts an instruction as 1 ns; the kernel takes this for a clock of 4 GHz, so as a quarter of that.
clock="tsc_early_khz=4000000 tsc=reliable no_timer_check"
console=ttyS0
image=ready
init=script
accel=auto
resume=
commit=
only=()
machine=

setting() { # setting FILE NAME: the value of "# NAME: VALUE" in a check
    sed -n "s/^# $2: //p" "$1" | head -n 1
}

list() { # INIT NAME SENTENCE of each check
    local file
    for file in "$here"/checks/*.sh; do
        printf '%-8s %-13s %s\n' "$(setting "$file" init)" "$(basename "$file" .sh)" "$(setting "$file" shows)"
    done
}

counts() { # counts LOG: of the tests in it that were run, " (2; 1 skipped)" of which 2 passed
    local text outcome count
    text=$(grep -c '^tests/.*::.* PASSED' "$1" || true)
    for outcome in FAILED ERROR SKIPPED; do
        count=$(grep -c "^tests/.*::.* $outcome" "$1" || true)
        [ "$count" = 0 ] || text+="; $count ${outcome,,}"
    done
    [ "$text" = 0 ] || echo " ($text)"
}

table() { # table FOLDER...: the last result of each check for each release, and the commits
    local folder release state name kernel at
    for folder in "$@"; do
        [ -f "$folder/machine" ] || die 2 "$folder is no folder of results"
    done
    {
        list | sed 's/^/check /'
        for folder in "$@"; do
            read -r release _ image _ <"$folder/machine"
            while read -r state name _ _ at kernel _; do
                [[ $state =~ ^(ok|FAILED|begun)$ ]] || continue
                echo "$state $release $name$image $kernel $at $(counts "$folder/$name.log")"
            done <"$folder/table"
        done
    } | awk '
        function cell(release, name) {
            if (!((release, name) in results)) return "not run"
            if (!index(used, commits[release, name])) used = used ", " commits[release, name]
            return results[release, name]
        }
        function row(name, sentence) { print "| `" name "` | " sentence " | " cell(12, name) " | " cell(13, name) " |" }
        BEGIN { words["ok"] = "ok"; words["FAILED"] = "FAILED"; words["begun"] = "cut short" }
        { kind = $1; second = $2; name = $3 }
        kind == "check" {
            names[++n] = name; systemd[n] = second == "systemd"
            $1 = $2 = $3 = ""; shows[n] = substr($0, 4)
            next
        }
        {
            sub(/ready$/, "", name); sub(/bare$/, " --bare", name); sub(/-amd64/, "", $4)
            kernels[second] = ", kernel " $4; commits[second, name] = $5
            $1 = $2 = $3 = $4 = $5 = ""; sub(/^ +/, "")
            results[second, name] = words[kind] ($0 ? " " $0 : "")
        }
        END {
            print "| check | what it shows | Debian 12" kernels[12] " | Debian 13" kernels[13] " |\n|---|---|---|---|"
            for (i = 1; i <= n; i++) row(names[i], shows[i])
            for (i = 1; i <= n; i++) if (systemd[i]) row(names[i] " --bare", "the same, its packages over the network")
            if (used) print "\nCommits: " substr(used, 3) "."
        }'
}

options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --list)
                list
                exit
                ;;
            --table)
                [ $# -gt 1 ] || die 2 "--table needs folders of results"
                table "${@:2}"
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
            --init | --only | --debian | --arch | --resume | --work | --accel)
                [ $# -gt 1 ] || die 2 "$1 needs a value; see --help"
                ;;
            *) die 2 "unknown option $1; see --help" ;;
        esac
        case $1 in
            --init) init=$2 ;;
            --only) only+=("$2") ;;
            --debian) debian=$2 ;;
            --arch) arch=$2 ;;
            --resume) resume=$(realpath -ms "$2") ;;
            --work) work=$(realpath -ms "$2") ;;
            --accel) accel=$2 ;;
        esac
        shift 2
    done
    if [ -n "$resume" ]; then
        [ -f "$resume/machine" ] || die 2 "$resume is no folder of results"
        read -r debian init image arch <"$resume/machine"
        work=$(dirname "$resume")
        [ ${#only[@]} -gt 0 ] || mapfile -t only <"$resume/names"
    fi
    case $init in script | systemd) ;; *) die 2 "--init is script or systemd, not $init" ;; esac
    [ "$init-$image" != script-bare ] || die 2 "--bare needs --init systemd, which has a network"
    case $debian in 12 | 13) ;; *) die 2 "--debian is 12 or 13, not $debian" ;; esac
    case $arch in
        amd64) ;;
        arm64)
            emulator=(qemu-system-aarch64 -M virt) processor=neoverse-n1 clock='' console=ttyAMA0
            programs=(qemu-system-aarch64:qemu-system-arm qemu-aarch64-static:qemu-user-static)
            ;;
        *) die 2 "--arch is amd64 or arm64, not $arch" ;;
    esac
    case $accel in kvm | tcg | auto) ;; *) die 2 "--accel is kvm, tcg or auto, not $accel" ;; esac
}

choose() { # which checks to run
    local name file
    [ ${#only[@]} -gt 0 ] || mapfile -t only < <(list | awk -v init="$init" '$1 == init {print $2}')
    for name in "${only[@]}"; do
        file=$here/checks/$name.sh
        [ -f "$file" ] || die 2 "there is no check $name; see --list"
        [ "$(setting "$file" init)" = "$init" ] || die 2 "check $name is for --init $(setting "$file" init)"
    done
}

missing_packages() { # those of programs that building or running the machine needs
    local need
    for need in debootstrap:debootstrap mke2fs:e2fsprogs git:git "${programs[@]}"; do
        command -v "${need%:*}" >/dev/null || echo "${need#*:}"
    done
}

is_ok() { # is_ok FOLDER NAME: at this commit
    grep -qs "^ok *$2 .* $commit " "$1/table"
}

job() { # job FOLDER: what the machine gets, and which checks to run
    local name log
    rm -rf "$1/job"
    mkdir -p "$1/job"
    touch "$1/names" "$1/table"
    printf '%s\n' "${only[@]}" | sort -u -o "$1/names" - "$1/names"
    echo "$debian $init $image $arch" >"$1/machine"
    git -C "$project" archive HEAD >"$1/job/project.tar"
    echo "$commit" >"$1/job/commit"
    tar -x -f "$1/job/project.tar" -C "$1/job" --strip-components=2 tests/vm # those of the commit, as they are recorded
    for name in "${only[@]}"; do
        ! is_ok "$1" "$name" || continue
        echo "$name" >>"$1/job/names"
        log=$1/$name.log # begins with the commit, at which the tests in it have passed
        [ "$(head -n 1 "$log" 2>/dev/null)" = "$commit" ] || echo "$commit" >"$log"
        sed -i '1p; /^tests\/.* PASSED/!d' "$log"
    done
}

boot() { # boot FOLDER IMAGES: runs the machine until it switches itself off
    local init_path=/init.sh network=(-nic none) processors=(-accel tcg -cpu "$processor" -icount shift=0 -smp 1)
    if [ "$init" = systemd ]; then
        init_path=/sbin/init network=(-nic "user,model=virtio-net-pci")
    fi
    [ "$accel-$arch" != auto-amd64 ] || ! boots_with_kvm "$2" || accel=kvm
    [ "$accel" != kvm ] || processors=(-accel kvm -cpu host -smp 2) clock=${clock#tsc_early_khz=* }
    # Changes of the disk are thrown away.
    "${emulator[@]}" "${processors[@]}" -m 4096 -display none -no-reboot -kernel "$2/vmlinuz" -initrd "$2/initrd" \
        -append "console=$console root=/dev/vda rw init=$init_path panic=-1 mitigations=off $clock" \
        -drive "file=$2/$image.img,if=virtio,format=raw,snapshot=on" \
        -virtfs "local,path=$1,mount_tag=results,security_model=none" \
        "${network[@]}" -serial "file:$1/console" </dev/null &
    machine=$!
    wait $machine || true # what counts are its results
    machine=
}

main() {
    local folder images state=0 reader name missing
    options "$@"
    choose
    [ "$EUID" -eq 0 ] || die 3 "building the machine needs root; run: sudo tests/vm/run.sh"
    missing=$(missing_packages)
    [ -z "$missing" ] || die 3 "packages are missing; run: apt-get install ${missing//$'\n'/ }"
    images=$work/debian-$debian
    [ "$arch" = amd64 ] || images+=-$arch
    "$here/build.sh" "$images" "${codenames[$debian]}" "$arch"
    commit=$(git -C "$project" rev-parse --short=8 HEAD)
    folder=${resume:-$(mktemp -d "$work/results-$(date -u +%Y%m%d-%H%M%S)-XXX")}
    chmod 755 "$folder"
    job "$folder"
    [ -f "$folder/job/names" ] || die 0 "all is ok at commit $commit"
    tail -n 0 -s 1 -F "$folder/table" 2>/dev/null & # shows the results as they come
    reader=$!
    # shellcheck disable=SC2064 # the ids and the folder of now
    trap "kill $reader 2>/dev/null || true; [ -z \"\$machine\" ] || kill \"\$machine\"; rm -rf '$folder/job'" EXIT
    trap 'exit 1' INT TERM HUP
    boot "$folder" "$images"
    sleep 1.5 # for the reader
    for name in "${only[@]}"; do
        is_ok "$folder" "$name" || state=1
    done
    [ -f "$folder/job/ended" ] || echo "run.sh: the machine ended before its checks did; see $folder/console" >&2
    echo "run.sh: the results are in $folder"
    [ "$state" = 0 ] || echo "run.sh: for what is not ok: tests/vm/run.sh --resume $folder"
    return "$state"
}

main "$@"
