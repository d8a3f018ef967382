#!/usr/bin/env bash
# Builds the image of the Containerfile and tries it, as root: its size, what a container of it needs, a fabric, whose
# the results are, quick runs. On request only; needs podman, and debootstrap unless --pull is given.
#
#   tests/image/run.sh               from a base that debootstrap makes here under the name that the file asks for
#   tests/image/run.sh --pull        from the base of its registry
#   --runs N         so many quick runs (default 1; 0: none); of each the time and the verdict are printed
#   --work FOLDER    where images are kept meanwhile (default /var/tmp/railyard-image; 5 GB), removed at the end
#   --keep           remove nothing, so that the next call builds only what has changed
#
# Exit status 0 if all is right, 1 if not. A run that is NOT FAITHFUL is no failure: that depends on the machine.
set -euo pipefail
umask 022
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

project=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd -P)
work=/var/tmp/railyard-image
base=debian:bookworm-slim
largest_mb=500 # above the base
runs=1 pull=no keep=no failed=0

die() { # die STATUS SENTENCE
    echo "run.sh: $2" >&2
    exit "$1"
}

options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --pull) pull=yes ;;
            --keep) keep=yes ;;
            --runs | --work)
                [ $# -gt 1 ] || die 2 "$1 needs a value; see --help"
                if [ "$1" = --runs ]; then runs=$2; else work=$(realpath -ms "$2"); fi
                shift
                ;;
            -h | --help)
                sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
                exit
                ;;
            *) die 2 "unknown option $1; see --help" ;;
        esac
        shift
    done
    [[ $runs =~ ^[0-9]$ ]] || die 2 "--runs is a number from 0 to 9, not $runs"
    [ "$EUID" -eq 0 ] || die 3 "this needs root; run: sudo tests/image/run.sh"
    command -v podman >/dev/null || die 3 "podman is missing; apt install podman"
}

pod() { # podman with a storage of its own, for half an hour at most
    timeout 1800 podman --root "$work/storage" --runroot "$work/run" --cgroup-manager cgroupfs "$@"
}

# What docs/image.md says that a container needs.
rights=(--cap-add "NET_ADMIN,SYS_ADMIN,NET_RAW,SYS_NICE" --device /dev/net/tun
    --security-opt unmask=/proc/sys --security-opt apparmor=unconfined)
# Limits and cgroups are left as they are, since not every machine lets podman change them.
plain=(run --rm --network none --cgroups=disabled --ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)"
    --ulimit nproc=32768:32768)

make_base() { # as the official image: Debian's minimum, without manuals and translations
    local mirror tree=$work/base
    if [ $pull = yes ]; then
        pod pull -q $base >/dev/null
        return
    fi
    ! pod image exists $base || return 0
    command -v debootstrap >/dev/null || die 3 "debootstrap is missing; apt install debootstrap, or use --pull"
    mirror=$(awk '/^URIs:/ {print $2; exit} /^deb / {print $2; exit}' \
        /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true)
    rm -rf --one-file-system "$tree"
    debootstrap --variant=minbase bookworm "$tree" "$mirror" >"$work/debootstrap.log" 2>&1 ||
        die 3 "debootstrap failed; its output is in $work/debootstrap.log"
    printf 'path-exclude /usr/share/%s/*\n' doc man locale info >"$tree/etc/dpkg/dpkg.cfg.d/docker"
    rm -rf "$tree"/usr/share/{doc,man,locale,info}/* "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/*
    tar -C "$tree" -c . | pod import -q - docker.io/library/$base >/dev/null
    rm -rf --one-file-system "$tree"
}

build() { # with the settings by which this machine's pip reaches its packages, which do not stay in the image
    local folder mounts=()
    if [ -e /etc/pip.conf ]; then
        mkdir -p "$work/machine"
        sed 's|^cert *=.*|cert = /machine/ca.crt|' /etc/pip.conf >"$work/machine/pip.conf"
        cp -L /etc/ssl/certs/ca-certificates.crt "$work/machine/ca.crt"
        mounts=(-v "$work/machine:/machine:ro" -v "$work/machine/pip.conf:/etc/pip.conf:ro")
        for folder in $(grep -oE '(^| |file://)/[^ ]+' /etc/pip.conf | sed 's|^ *file://||; s|^ *||'); do
            [ ! -d "$folder" ] || mounts+=(-v "$folder:$folder:ro")
        done
    fi
    pod build --isolation chroot --network host --ulimit "nofile=$(ulimit -Hn):$(ulimit -Hn)" "${mounts[@]}" \
        -t railyard -f "$project/Containerfile" "$project" >"$work/build.log" 2>&1 ||
        die 1 "the image could not be built; the output is in $work/build.log"
}

megabytes() { echo $(($(pod image inspect "$1" --format '{{.Size}}') / 1000000)); }

report() { # report RIGHT SENTENCE: RIGHT is "yes" or anything else
    if [ "$1" = yes ]; then
        echo "ok      $2"
    else
        echo "failed  $2"
        failed=1
    fi
}

expect() { # expect SENTENCE STATUS PATTERN COMMAND...: the status of a command, and a line of what it prints
    local sentence=$1 status=$2 pattern=$3 right=yes code=0
    shift 3
    "$@" >"$work/output" 2>&1 || code=$?
    [ $code -eq "$status" ] && grep -qE -- "$pattern" "$work/output" || right=no
    report $right "$sentence"
    [ $right = yes ] || sed 's/^/        /' "$work/output"
}

try_fabric() { # try_fabric SENTENCE DATAPATH OPTION...
    local sentence=$1 datapath=$2
    shift 2
    expect "$sentence" 0 "datapath $datapath,.*yes.* 0 of 8 pings" pod "${plain[@]}" "${rights[@]}" "$@" --entrypoint sh \
        railyard -c 'echo $(railyard up rails --servers 4 --gpus 1) yes $(railyard pingall); railyard down >/dev/null'
}

try_image() {
    local size right=no
    size=$(($(megabytes railyard) - $(megabytes $base)))
    [ $size -gt $largest_mb ] || right=yes
    report $right "$size MB above its base (limit $largest_mb)"
    expect "every library in it loads" 0 "^[1-9][0-9]* libraries load$" pod "${plain[@]}" \
        -v "$project/tests/image/libraries.py:/libraries.py:ro" --entrypoint /opt/railyard/bin/python railyard /libraries.py
    expect "a prediction needs no options" 0 "provisioned" pod "${plain[@]}" railyard predict rails --quick
    expect "doctor without options says what to add" 3 "--cap-add SYS_ADMIN" pod "${plain[@]}" railyard doctor
    expect "doctor with them lacks nothing" 0 "Root can run experiments" pod "${plain[@]}" "${rights[@]}" railyard doctor
    try_fabric "a fabric" bpf
    try_fabric "a fabric in a read-only container" bpf --read-only
    try_fabric "a fabric in a user namespace, as that of rootless podman" ovs --uidmap 0:100000:65536
}

quick_run() { # quick_run NUMBER: whose its results are, how long it took, and its verdict
    local folder=$work/results-$1 code=0 begun=$SECONDS right=no verdict=faithful
    rm -rf "$folder" && mkdir "$folder" && chown 12345:12345 "$folder"
    pod "${plain[@]}" "${rights[@]}" -v "$folder:/work" railyard run rails --quick >"$work/output" 2>&1 || code=$?
    [ $code -eq 0 ] || verdict="status $code, $(grep -m 1 'NOT FAITHFUL:' "$work/output" || tail -n 1 "$work/output")"
    if [[ $code =~ ^[08]$ ]] && [ -z "$(find "$folder" ! -uid 12345)" ] &&
        compgen -G "$folder/results/*/summary.json" >/dev/null; then
        right=yes
    fi
    report $right "quick run $1 in $((SECONDS - begun)) s: $verdict"
}

clean() {
    [ $keep = yes ] || pod rm -a -f >/dev/null 2>&1 || true
    [ $keep = yes ] || pod rmi -a -f >/dev/null 2>&1 || true
    umount "$work/storage/overlay" 2>/dev/null || true
    [ $keep = yes ] || rm -rf --one-file-system "$work"
}

main() {
    local number
    options "$@"
    if [ -z "${RAILYARD_IMAGE_MOUNTS-}" ]; then # mounts of containers end with this process, whatever happens
        RAILYARD_IMAGE_MOUNTS=own exec unshare --mount --propagation private "${BASH_SOURCE[0]}" "$@"
    fi
    # crun refuses machines with both kinds of cgroups, as if containers here were given one.
    ! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
    mkdir -p "$work"
    trap clean EXIT
    make_base
    build
    try_image
    for number in $(seq "$runs"); do quick_run "$number"; done
    return $failed
}

main "$@"
