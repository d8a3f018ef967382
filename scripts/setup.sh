#!/bin/bash
# Sets up Railyard on Debian 12, Debian 13 or Ubuntu 24.04: missing packages of
# the distribution, a virtual environment with the pinned Python packages, and the
# system's Open vSwitch for plain "sudo mn --custom". A second call installs only
# what is missing and takes a moment.
#
#   sudo scripts/setup.sh       install everything that is missing
#   scripts/setup.sh --check    list what is there and what is missing, and change nothing; exit status 0 if nothing is
#   scripts/setup.sh --brief    as without options, silent if nothing is missing
#   scripts/setup.sh --torch    as without options, and PyTorch's build for processors (750 MB), for record and torchrun
#   scripts/setup.sh --help     this text
#
# Root is needed only to install something. Environment variables:
#   RAILYARD_VENV        folder of the virtual environment (default .venv in the
#                        project, or /var/lib/railyard/venv if the project's file
#                        system has no symbolic links)
#   RAILYARD_PYTHON      Python of the environment (default /usr/bin/python3)
#   RAILYARD_SYSTEM_OVS  "no": never start the system's Open vSwitch (Railyard
#                        itself runs a private one)
set -euo pipefail
umask 022 # root's files must be readable by the person who called sudo
# A relative or empty entry of PATH is the working directory, whose programs would run as root.
PATH=$(IFS=: && for folder in $PATH; do [[ $folder != /* ]] || printf '%s:' "$folder"; done)/usr/local/sbin:/usr/sbin:/sbin
export PATH
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV # settings of another environment would break this one

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
python=${RAILYARD_PYTHON:-/usr/bin/python3} # the first one on PATH may be a shim of a version manager
shared_venv=/var/lib/railyard/venv
caches=/var/cache/railyard # compiled modules of root, where the checkout is another user's
debian_python=/usr/lib/python3/dist-packages
requirements=scripts/requirements.txt
torch=scripts/torch.txt
network="the network, a proxy (sudo http_proxy=URL https_proxy=URL scripts/setup.sh)" # in sentences of errors
# The machine's configuration of pip applies, except that a per-user install does not work in an environment.
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# mininet: mnexec and the Mininet classes; iproute2 and util-linux: ip, tc, nsenter; ethtool: offloads; iperf3 and
# tcpdump: cross-checks by hand; iputils-ping and net-tools: Mininet's pingAll and ifconfig; openssh-client: other
# machines; ca-certificates: TLS of pip; libjemalloc2: a malloc that keeps ovs-vswitchd small.
packages=(
    mininet openvswitch-switch iproute2 util-linux ethtool iperf3 tcpdump iputils-ping net-tools procps
    openssh-client ca-certificates python3 python3-venv libjemalloc2
)

say() { echo "setup: $*"; }
die() { # die STATUS SENTENCE
    echo "setup: $2" >&2
    exit "$1"
}

missing_packages() {
    local installed name
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
    for name in "${packages[@]}"; do
        grep -qx "$name installed" <<<"$installed" || echo "$name"
    done
}

holds_symlinks() { # holds_symlinks FOLDER: shared folders of virtual machines often have no symbolic links
    local link
    link=$(mktemp -u "$1/.railyard-link-XXXXXX")
    ln -s nowhere "$link" 2>/dev/null && rm -f "$link"
}

choose_venv() {
    if [ -n "${RAILYARD_VENV-}" ]; then
        realpath -ms "$RAILYARD_VENV"
    elif [ -x "$root/.venv/bin/python" ] || holds_symlinks "$root"; then
        echo "$root/.venv"
    else
        echo $shared_venv
    fi
}

fingerprint() { # hash of everything that determines the content of the environment
    (
        cd "$root"
        cat setup.cfg pyproject.toml scripts/setup.sh $requirements
        echo "$root $(readlink -f "$python")"
    ) | sha256sum | cut -d ' ' -f 1
}

venv_is_current() {
    [ -x "$venv/bin/python" ] && [ -f "$venv/railyard.stamp" ] && [ "$(<"$venv/railyard.stamp")" = "$(fingerprint)" ] &&
        compgen -G "$venv/lib/python3*/site-packages/mininet/net.py" >/dev/null
}

needs_root() { # needs_root ACTION: exit unless root
    [ "$EUID" -eq 0 ] || die 3 "$1 needs root; run: sudo scripts/setup.sh"
}

logged() { # logged SENTENCE COMMAND...: run without output; on failure print the end of its output and SENTENCE
    local sentence=$1 log
    shift
    log=$(mktemp "${TMPDIR:-/tmp}/railyard-setup-XXXXXX.log")
    if "$@" >"$log" 2>&1 </dev/null 9>&-; then
        rm -f "$log"
    else
        tail -n 20 "$log" >&2
        die 3 "$sentence (full output in $log)"
    fi
}

# --- the distribution's packages ---------------------------------------------------------------------------

install_packages() { # install_packages NAME...
    local id
    # shellcheck disable=SC1091 # not ours to check
    id=$(. /etc/os-release 2>/dev/null && echo "${ID-}-${VERSION_ID-}") || id=unknown
    command -v apt-get >/dev/null ||
        die 3 "this is $id without apt-get; setup.sh supports Debian 12 and 13 and Ubuntu 24.04, elsewhere install: $*"
    needs_root "installing $*"
    case $id in
        debian-12 | debian-13) ;;
        *) say "this is $id; Railyard has been tried on Debian 12 and 13 only" ;;
    esac
    export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 # ask nothing, restart none of the user's services
    say "installing with apt: $*"
    logged "apt-get update failed; check $network and /etc/apt" apt-get -q -o DPkg::Lock::Timeout=600 update
    logged "apt-get could not install $*; check $network and /etc/apt (on Ubuntu the component universe)" \
        apt-get -q -y -o DPkg::Lock::Timeout=600 --no-install-recommends install "$@"
}

# --- the virtual environment -------------------------------------------------------------------------------

in_venv() { "$venv/bin/python" "$@"; }

make_venv() {
    local version
    version=$("$python" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
        die 3 "$python does not run; install the package python3"
    case $version in
        3.1[0-4]) ;;
        *) die 3 "$python is Python $version; Railyard needs 3.10 to 3.14 (RAILYARD_PYTHON names another)" ;;
    esac
    # An environment of another Python, or one that was interrupted while being made, is made again.
    if [ -x "$venv/bin/python" ] &&
        [ "$(in_venv -I -c 'import sys, pip; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$version" ]; then
        return
    fi
    if [ -e "$venv" ] && [ ! -f "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
        die 3 "$venv exists and is no virtual environment; move it away or name another folder in RAILYARD_VENV"
    fi
    say "making the virtual environment $venv (Python $version)"
    logged "the virtual environment could not be made with $python" "$python" -m venv --clear "$venv"
}

install_python_packages() {
    say "installing the Python packages of $requirements (a minute the first time)"
    # With what ryu is built with, which it would fetch itself otherwise, without a hash, and on Python 3.14 in vain.
    logged "pip could not install setuptools; check $network and pip's configuration (pip config list)" \
        in_venv -m pip install -q --require-hashes \
            -r <(sed -n '/^\(pbr\|setuptools\|wheel\)==/,/[^\]$/p' "$root/$requirements")
    # ryu builds only with the old setuptools just installed, hence without an isolated build environment.
    logged "pip could not install $requirements; check $network and pip's configuration (pip config list)" \
        in_venv -m pip install -q --require-hashes --no-build-isolation -r "$root/$requirements"
    # The project itself and nothing more: what it needs is there, with the right hashes.
    logged "pip could not install the project" \
        in_venv -m pip install -q --no-deps --no-index --no-build-isolation -e "$root"
    logged "$requirements does not fit setup.cfg; renew it as scripts/constraints.txt says" consistent
}

consistent() { # what scripts/torch.txt leaves out is not missed
    ! { in_venv -m pip check || true; } | grep -Ev '^(No broken|torch .* setuptools|mlc-chakra )'
}

install_torch() {
    ! cmp -s "$root/$torch" "$venv/railyard.torch" || return 0
    [ -w "$venv" ] || needs_root "writing $venv"
    say "installing PyTorch's build for processors (180 MB to fetch, 750 MB on the disk)"
    logged "pip could not install $torch; add PyTorch's index of CPU builds to those that it knows (docs/torch.md)" \
        in_venv -m pip install -q --no-deps -r "$root/$torch"
    cp "$root/$torch" "$venv/railyard.torch"
    give_to_owner
}

link_mininet() { # links only Mininet: other packages of the distribution would shadow the pinned ones
    local packages_dir
    packages_dir=$(in_venv -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # With its metadata (.egg-info or .dist-info) pip takes it for installed, and does not fetch the older one of PyPI.
    if [ ! -d $debian_python/mininet ] || ! compgen -G "$debian_python/mininet-*-info" >/dev/null; then
        die 3 "$debian_python/mininet or its metadata are missing; reinstall the package mininet"
    fi
    ln -sfn -t "$packages_dir" $debian_python/mininet $debian_python/mininet-*-info
}

check_venv_is_ours() { # an environment of another checkout may be reached by a link or be named by mistake
    local real other
    real=$(realpath -m "$venv")
    other=$(cat "$real/railyard.checkout" 2>/dev/null) || other=
    if [ "$real" = $shared_venv ] || [ "$other" = "$root" ]; then
        return # the shared one belongs to whoever made it last
    fi
    if [ -d "$other" ]; then
        die 3 "$venv is the environment of $other; remove the link, or name another folder in RAILYARD_VENV"
    elif [ -L "$venv" ] && [ -e "$real" ] && [ -n "$(ls -A "$real")" ]; then
        die 3 "$venv is a link to $real, which setup.sh did not make; remove the link"
    fi
}

owned_by_another() { # whether root works in the checkout of another user
    [ "$EUID" -eq 0 ] && [ "$(stat -c %u "$root")" != 0 ]
}

keep_caches_out() { # root's Python must not leave files in another user's checkout that the user cannot delete
    local site
    site=$(in_venv -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    rm -f "$site"/*railyard_caches.pth
    if owned_by_another; then # Python takes these files in the order of their names, and others import modules
        echo "import os, sys; sys.pycache_prefix = None if os.geteuid() else '$caches'" >"$site/00_railyard_caches.pth"
    fi
}

give_to_owner() { # gives the environment to the owner of the project, who can then change it without sudo
    if owned_by_another; then
        find "$root" -maxdepth 1 -name '*.egg-info' -exec chown -hR "$(stat -c %u:%g "$root")" {} +
        if [ "$venv" = "$root/.venv" ]; then
            chown -hR "$(stat -c %u:%g "$root")" "$venv"
        fi
    fi
}

set_up_venv() {
    check_venv_is_ours
    mkdir -p "$(dirname "$venv")" 2>/dev/null || true
    if [ ! -w "$(dirname "$venv")" ] || { [ -e "$venv" ] && [ ! -w "$venv" ]; }; then
        needs_root "writing $venv"
    fi
    # Of two set-ups at the same time the second one waits, and then finds a finished environment.
    exec 9<"$(dirname "$venv")"
    if ! flock -n 9 2>/dev/null; then
        say "waiting for another set-up of $venv"
        flock -w 1800 9 || die 3 "another set-up of $venv has not ended in half an hour"
        venv_is_current && return
    fi
    make_venv
    rm -f "$venv/railyard.stamp"
    keep_caches_out
    link_mininet
    install_python_packages
    logged "the virtual environment was made but does not work; remove $venv and try again" \
        in_venv -c 'import mininet.net, railyard, os_ken, ryu'
    echo "$root" >"$venv/railyard.checkout"
    fingerprint >"$venv/railyard.stamp"
    give_to_owner
}

# --- the system's Open vSwitch -----------------------------------------------------------------------------

ovs_runs() {
    local pid
    pid=$(cat /run/openvswitch/ovs-vswitchd.pid 2>/dev/null) &&
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = ovs-vswitchd ]
}

kernel_has_ovs() {
    [ -d /sys/module/openvswitch ] || modprobe -q openvswitch 2>/dev/null
}

start_userspace_ovs() { # the service refuses to start without the kernel module, which userspace switching does not need
    /usr/share/openvswitch/scripts/ovs-ctl --no-ovs-vswitchd --no-monitor --system-id=random --no-record-hostname start
    if [ -z "$(ovs-vsctl --timeout=5 --no-wait list-br)" ]; then
        ovs-vsctl --timeout=5 --no-wait set Open_vSwitch . other_config:userspace-tso-enable=true
    fi
    ovs-vswitchd --pidfile --detach --no-chdir --log-file -vconsole:emer -vsyslog:err "unix:/run/openvswitch/db.sock"
}

start_system_ovs() { # only for plain "sudo mn --custom", so a failure does not stop the set-up
    local tried=/run/railyard/system-ovs-tried # tried once per boot
    if [ "${RAILYARD_SYSTEM_OVS-}" = no ] || [ "$EUID" -ne 0 ] || [ -e $tried ] || ovs_runs; then
        return 0
    fi
    mkdir -p "$(dirname $tried)" && touch $tried
    if kernel_has_ovs; then
        say "starting the system's Open vSwitch (kernel datapath)"
        service openvswitch-switch start >/dev/null 2>&1 </dev/null || true
    else
        say "starting the system's Open vSwitch; this kernel has no openvswitch module, so userspace-tso-enable=true is set if it has no bridges"
        (start_userspace_ovs) >/dev/null 2>&1 </dev/null || true
    fi
    ovs_runs ||
        say "note: the system's Open vSwitch did not start; Railyard runs its own, only plain 'sudo mn --custom' needs it"
}

# -----------------------------------------------------------------------------------------------------------

check() { # one line per finding, "setup: STATE: THING: SENTENCE", which "railyard doctor" reads too
    local state=0 name missing
    missing=$(missing_packages)
    for name in $missing; do
        say "missing: package $name: is not installed"
        state=1
    done
    [ -n "$missing" ] || say "ok: packages: all ${#packages[@]} packages of the distribution are installed"
    if venv_is_current; then
        say "ok: virtual environment: $venv"
    else
        say "missing: virtual environment: $venv does not exist or is out of date"
        state=1
    fi
    if ovs_runs; then
        say "ok: system's Open vSwitch: runs"
    else
        say "warning: system's Open vSwitch: does not run; only plain 'sudo mn --custom' needs it"
    fi
    return $state
}

main() {
    local brief=no with_torch=no missing
    venv=$(choose_venv)
    case "${1-}" in
        "") ;;
        --brief) brief=yes ;;
        --torch) with_torch=yes ;;
        --check)
            check
            exit
            ;;
        -h | --help)
            sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$root/scripts/setup.sh"
            exit
            ;;
        *) die 2 "unknown option $1; see scripts/setup.sh --help" ;;
    esac
    missing=$(missing_packages)
    # shellcheck disable=SC2086 # one word per package
    [ -z "$missing" ] || install_packages $missing
    if ! venv_is_current; then
        set_up_venv
        exec 9<&- # the lock, which a daemon would hold
        brief=no
    fi
    [ $with_torch = no ] || install_torch
    start_system_ovs
    [ $brief = yes ] || say "Railyard is set up; Python: $venv/bin/python"
}

main "$@"
