#!/usr/bin/env bash
# Does with vagrant/Vagrantfile what a person does, as root, under libvirt: the committed state of this checkout on the
# Debian that tests/vm/build.sh builds. On request only; see docs/install.md.
#
#   tests/vm/vagrant.sh                vagrant up, scripts/run.sh --quick in the machine, halt, destroy
#   MACHINES=2 tests/vm/vagrant.sh     the same with a fabric over two machines (docs/cluster.md) as the run
#   tests/vm/vagrant.sh --box          only makes the box, and says how to use it with a libvirt of your own
#   --debian RELEASE   12 or 13 (the default)
#   --work FOLDER      where images and the box are kept (default /var/tmp/railyard-vm; 8 GB a release)
#
# Each machine has CPUS processors and MEMORY MiB (2 and 3072; variables of the Vagrantfile). Exit status 0 if all went
# well; runs may be called NOT FAITHFUL. libvirtd and the machines live in namespaces of their own, with a network that
# leads nowhere, and end with this script. Where /dev/kvm boots no machine they are emulated, and their clocks run slower
# by SLOW (5; by libfaketime, as two that count instructions would differ): more beside other work.
set -euo pipefail
umask 022
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd -P)
project=$(dirname "$(dirname "$here")")
work=/var/tmp/railyard-vm
debian=13
only_box=
faketime=/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1
# shellcheck disable=SC1091 # only -x follows it
. "$here/shared.sh"
packages=(vagrant vagrant-libvirt libvirt-daemon-system dnsmasq-base iptables qemu-system-x86 qemu-utils libfaketime
    debootstrap e2fsprogs git iproute2 rsync)
short="--workload smoke --modes electrical,on-demand --delays 500 --time 20 --steps 1 --repeats 1 --attempts 1"

options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --box) only_box=yes ;;
            --debian) debian=${2-} && shift ;;
            --work) work=$(realpath -ms "${2-.}") && shift ;;
            -h | --help)
                sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
                exit
                ;;
            *) die 2 "unknown option $1; see --help" ;;
        esac
        shift || die 2 "the last option needs a value; see --help"
    done
    case $debian in 12 | 13) ;; *) die 2 "--debian is 12 or 13, not $debian" ;; esac
}

missing_packages() {
    local installed name
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
    for name in "${packages[@]}"; do
        grep -qx "$name installed" <<<"$installed" || echo "$name"
    done
}

in_namespaces() { # in_namespaces OPTION FUNCTION ARGUMENT...: with mounts and processes that end with this script
    setpriv --pdeathsig KILL unshare --mount "$1" --pid --fork --kill-child --mount-proc \
        bash "$here/vagrant.sh" --inside "${@:2}"
}

make_box() { # make_box IMAGES: what is set up there, with what the boxes of others have: sshd, rsync, Vagrant's key
    local box=$1/box root=$1/box/root
    rm -rf --one-file-system "$box"
    mkdir -p "$box"/{root,changes,work}
    mount -t overlay -o "lowerdir=$1/ready,upperdir=$box/changes,workdir=$box/work" box "$root"
    mkdir -p "$root/home/vagrant/.ssh"
    cp "$(dpkg -L vagrant | grep '/keys/vagrant.pub$')" "$root/home/vagrant/.ssh/authorized_keys"
    # A machine makes an identity of its own when it boots: two with the same one would get the same address.
    inside "$root" '
        printf "#!/bin/sh\nexit 101\n" >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
        export DEBIAN_FRONTEND=noninteractive
        apt-get -q update
        apt-get -q -y --no-install-recommends install openssh-server rsync
        apt-get clean
        rm /usr/sbin/policy-rc.d
        systemctl disable -q checks.service
        chown -R vagrant: /home/vagrant/.ssh; chmod 700 /home/vagrant/.ssh
        : >/etc/machine-id; rm -f /var/lib/dbus/machine-id
        : >/etc/resolv.conf' >"$1/box.log" 2>&1 || die 3 "making the box failed; its output is in $1/box.log"
    mke2fs -q -t ext4 -d "$root" "$box/disk" 6G >/dev/null
    umount "$root"
    qemu-img convert -O qcow2 "$box/disk" "$box/box.img"
    cp "$1/vmlinuz" "$1/initrd" "$box/"
    echo '{"provider": "libvirt", "format": "qcow2", "virtual_size": 6}' >"$box/metadata.json"
    cat >"$box/Vagrantfile" <<END
Vagrant.configure("2") do |config|
  config.vm.provider "libvirt" do |libvirt|
    libvirt.kernel = File.expand_path("vmlinuz", __dir__)
    libvirt.initrd = File.expand_path("initrd", __dir__)
    libvirt.cmd_line = "root=/dev/vda rw console=ttyS0 mitigations=off tsc=reliable no_timer_check"
  end
end
END
    tar -C "$box" -cf "$1/new.box" metadata.json Vagrantfile vmlinuz initrd box.img
    mv "$1/new.box" "$1/railyard.box"
    rm -rf --one-file-system "$box"
}

settings() { # settings SCRATCH: those of this machine for Vagrant, where no KVM boots
    mkdir "$1/home"
    cat >"$1/home/Vagrantfile" <<END
Vagrant.configure("2") do |config|
  config.vm.boot_timeout = 3600
  config.vm.graceful_halt_timeout = 600
  config.vm.provider "libvirt" do |libvirt|
    libvirt.driver = "qemu"
    libvirt.cpu_mode = "maximum"
    libvirt.qemuenv LD_PRELOAD: "$faketime", FAKETIME: "+0 x$(awk "BEGIN {print 1 / ${SLOW:-5}}")"
  end
end
END
}

start_libvirt() { # start_libvirt SCRATCH: one that knows nothing of what the machine's own does
    local folder
    ip link set lo up
    umount -R -l /sys/fs/cgroup # without it libvirt leaves control groups alone
    mount -t sysfs sys /sys     # that of the new network
    mount -t tmpfs -o mode=755 run /run
    for folder in /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt; do
        mkdir -p "$1$folder"
        mount --bind "$1$folder" $folder
    done
    cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
stdio_handler = "file"
namespaces = []
END
    libvirtd --daemon || die 3 "libvirtd does not start: $(tail -n 1 /var/log/libvirt/libvirtd.log)"
}

step() { # step ARGUMENT...: a command of Vagrant, which is shown
    echo "+ vagrant $*"
    vagrant --no-tty "$@" </dev/null
}

on_machine() { # on_machine COMMAND: on the first one; a run may be called NOT FAITHFUL (status 8)
    local status=0
    step ssh -c "$1" || status=$?
    [ $status = 0 ] || [ $status = 8 ] || die 1 "status $status: $1"
}

as_a_person() { # as_a_person SCRATCH BOX: in the namespaces
    trap 'exit 1' INT TERM HUP
    start_libvirt "$1"
    export VAGRANT_HOME=$1/home VAGRANT_DEFAULT_PROVIDER=libvirt VAGRANT_CHECKPOINT_DISABLE=1 BOX=railyard-box
    export MACHINES=${MACHINES:-1} CPUS=${CPUS:-2} MEMORY=${MEMORY:-3072}
    cd "$1/project/vagrant"
    step validate
    step box add --name $BOX "$2"
    step up
    if [ "$MACHINES" = 1 ]; then
        on_machine 'cd /railyard && sudo scripts/run.sh --quick --attempts 1'
    else
        on_machine 'ssh railyard2 hostname && ping -c 3 -M do -s 4222 railyard2'
        on_machine "cd /railyard && sudo scripts/run.sh rails --cluster railyard1,railyard2 --rate 1/1000 $short"
    fi
    step halt
    step destroy -f
}

main() {
    local missing images scratch
    options "$@"
    [ "$EUID" -eq 0 ] || die 3 "libvirt's networks need root; run: sudo tests/vm/vagrant.sh"
    missing=$(missing_packages)
    [ -z "$missing" ] || die 3 "packages are missing; run: apt-get install --no-install-recommends ${missing//$'\n'/ }"
    images=$work/debian-$debian
    "$here/build.sh" "$images" "${codenames[$debian]}"
    if [ ! "$images/railyard.box" -nt "$images/ready.img" ] || [ ! "$images/railyard.box" -nt "$here/vagrant.sh" ]; then
        in_namespaces --mount make_box "$images"
    fi
    if [ -n "$only_box" ]; then
        echo "vagrant box add --name railyard-box $images/railyard.box"
        echo "cd vagrant && BOX=railyard-box vagrant up --provider libvirt"
        return
    fi
    scratch=$(mktemp -d "$work/vagrant-XXX")
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf --one-file-system '$scratch'" EXIT
    mkdir "$scratch/project"
    git -C "$project" archive HEAD | tar -x -C "$scratch/project"
    boots_with_kvm "$images" || settings "$scratch"
    in_namespaces --net as_a_person "$scratch" "$images/railyard.box"
}

if [ "${1-}" = --inside ]; then
    "${@:2}"
else
    main "$@"
fi
