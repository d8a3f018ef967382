#!/usr/bin/env bash
# Tries scripts/setup.sh, then the shortest run, in places where people have a
# checkout: each on a fresh Debian (that of tests/vm) whose changes are thrown away,
# on the kernel of this machine. On request only, as root; needs debootstrap.
#
#   tests/places.sh            all places
#   tests/places.sh NAME...    these alone
#   tests/places.sh --list     the places
#   --debian RELEASE   12 (the default) or 13
#   --work FOLDER      where Debian and the logs are kept (default that of
#                      tests/vm/run.sh)
#
# Prints a row of the table in docs/install.md for each place. Exit status 0 if all
# are ok, 1 if not.
set -euo pipefail
umask 022
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

tests=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
# shellcheck disable=SC1091 # only -x follows it
. "$tests/vm/shared.sh"
debian=12
kept=/var/tmp/railyard-vm
chosen=()

by_proxy="sudo http_proxy=http://127.0.0.1:18118 https_proxy=http://127.0.0.1:18118"
by_wheels="sudo PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels"
# name|Debian: bare, or ready with the packages of a set-up|who types|what stands before the scripts|folder|what it is
places=(
    "root-home|bare|root||/root/railyard|root's home, closed to others, by root's shell"
    "no-sudo|ready|root||/opt/railyard|a machine without \`sudo\`, by root's shell"
    "closed-home|ready|vagrant|sudo|/home/vagrant/railyard|a user's home of mode 0700"
    "spaces|ready|vagrant|sudo|/home/vagrant/my work/rail yard|a path with spaces"
    "no-links|ready|vagrant|sudo|/shared/railyard|a folder without symbolic links and owners (exFAT)"
    "strict-sudo|ready|vagrant|sudo|/home/vagrant/railyard|\`sudo\` with \`env_reset\`, \`secure_path\`, umask 0077"
    "proxy|bare|vagrant|$by_proxy|/home/vagrant/railyard|a proxy, and no other network"
    "refusing-proxy|bare|vagrant|$by_proxy|/home/vagrant/railyard|a proxy that does not answer"
    "offline|ready|vagrant|$by_wheels|/home/vagrant/railyard|no network, a folder of wheels"
)

# --- in the Debian, as its root ----------------------------------------------------------------------------

install_packages() {
    apt-get -q update
    apt-get -q -y --no-install-recommends install "$@"
}

without_names() { # no host has an address from here on, but for what runs already
    local file
    for file in /etc/hosts /etc/resolv.conf; do
        mount --bind /dev/null $file
    done
}

prepare() { # prepare NAME: makes the place what it is
    case $1 in
        no-sudo) rm /usr/bin/sudo ;;
        closed-home) chmod 700 /home/vagrant ;;
        strict-sudo)
            echo 'Defaults env_reset, secure_path="/usr/bin:/bin", umask=0077, umask_override' >/etc/sudoers.d/strict
            ;;
        no-links)
            install_packages exfat-fuse exfatprogs
            truncate -s 200M /shared.img
            mkfs.exfat /shared.img
            mkdir /shared
            mount -t exfat-fuse -o "loop,allow_other,umask=022,uid=$(id -u vagrant),gid=$(id -g vagrant)" \
                /shared.img /shared
            ! ln -s nowhere /shared/link
            ;;
        proxy)
            install_packages tinyproxy-bin
            printf '%s\n' 'Port 18118' 'Listen 127.0.0.1' 'Allow 127.0.0.1' >/etc/proxy.conf
            unshare --mount tinyproxy -c /etc/proxy.conf
            without_names
            ;;
        offline)
            /railyard/.venv/bin/python -m pip download -q --no-deps --no-build-isolation --require-hashes -d /wheels \
                -r /railyard/scripts/requirements.txt
            without_names
            ;;
    esac
}

try() { # try NAME PERSON PREFIX FOLDER
    local name=$1 person=$2 prefix=$3 folder # folder: as typed
    folder=$(printf %q "$4")
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # this network has an Open vSwitch, or none
    chmod 755 /usr/sbin/policy-rc.d
    mkdir -p /run/railyard && touch /run/railyard/system-ovs-tried
    prepare "$name"
    typed() { runuser -l "$person" -c "cd $folder && $1"; }
    runuser -l "$person" -c "mkdir -p $folder && tar -x -C $folder" </project.tar
    if [ "$name" = refusing-proxy ]; then
        typed "$prefix scripts/setup.sh" 2>/refusal || [ $? = 3 ]
        tail -n 1 /refusal | grep "proxy"
        return
    fi
    typed "$prefix scripts/setup.sh"
    typed "scripts/setup.sh --check"
    typed "$prefix scripts/run.sh --workload smoke --modes electrical,on-demand --delays 500 --time 20 --steps 1 \
        --repeats 1 --attempts 1 --out results/short" || [ $? = 8 ] # a busy machine is not faithful
    typed "scripts/railyard.py plot results/short" || [ $? = 8 ]
    [ -z "$(find "$4" ! -user "$person" -print -quit)" ]
}

# --- on this machine ---------------------------------------------------------------------------------------

options() {
    while [ $# -gt 0 ]; do
        case $1 in
            -h | --help)
                sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
                exit
                ;;
            --list)
                printf '%s\n' "${places[@]}" | awk -F '|' '{printf "%-15s %s\n", $1, $6}'
                exit
                ;;
            --debian | --work)
                [ $# -gt 1 ] || die 2 "$1 needs a value; see --help"
                if [ "$1" = --debian ]; then debian=$2; else kept=$(realpath -ms "$2"); fi
                shift
                ;;
            *)
                printf '%s\n' "${places[@]%%|*}" | grep -qx -e "$1" || die 2 "there is no place $1; see --list"
                chosen+=("$1")
                ;;
        esac
        shift
    done
    case $debian in 12 | 13) ;; *) die 2 "--debian is 12 or 13, not $debian" ;; esac
    [ "$EUID" -eq 0 ] || die 3 "the places are made as root; run: sudo tests/places.sh"
    command -v debootstrap >/dev/null || die 3 "debootstrap is missing; run: apt-get install debootstrap"
}

attempt() { # attempt IMAGES NAME BASE PERSON PREFIX FOLDER
    local place=$1/place functions status=0
    rm -rf --one-file-system "$place" # of one that was interrupted
    mkdir -p "$place"/{upper,work,root}
    mount -t overlay -o "lowerdir=$1/$3,upperdir=$place/upper,workdir=$place/work" places "$place/root"
    git -C "$tests/.." archive HEAD >"$place/root/project.tar"
    cp -L /etc/resolv.conf "$place/root/etc/resolv.conf"
    functions=$(declare -f install_packages without_names prepare try)
    inside "$place/root" "$functions; set -x; try $(printf '%q ' "$2" "${@:4}")" >"$1/$2.log" 2>&1 </dev/null ||
        status=1
    umount "$place/root"
    rm -rf --one-file-system "$place"
    return $status
}

main() {
    local images=$kept/debian-$debian entry name base person prefix folder shows result state=0
    "$tests/vm/build.sh" "$images" "${codenames[$debian]}"
    for entry in "${places[@]}"; do
        IFS='|' read -r name base person prefix folder shows <<<"$entry"
        [[ ${#chosen[@]} -eq 0 || " ${chosen[*]} " == *" $name "* ]] || continue
        result=ok
        attempt "$images" "$name" "$base" "$person" "$prefix" "$folder" || result="failed: $images/$name.log" state=1
        echo "| \`$name\` | $shows | $result |"
    done
    return $state
}

options "$@"
if [ -z "${RAILYARD_PLACES-}" ]; then # mounts and processes of this script alone, which end with it
    RAILYARD_PLACES=mine exec unshare --mount --pid --fork --kill-child --propagation private "${BASH_SOURCE[0]}" "$@"
fi
main
