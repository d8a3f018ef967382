#!/bin/bash
# The first process of a machine that run.sh boots with "--init script"; with systemd, checks.service starts it.
# Runs guest.sh of the folder that run.sh shares with the machine, and switches the machine off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb
if [ $$ = 1 ]; then
    # The initial file system has mounted some of these.
    mountpoint -q /proc || mount -t proc proc /proc
    mountpoint -q /sys || mount -t sysfs sys /sys
    mountpoint -q /dev || mount -t devtmpfs dev /dev
    mountpoint -q /run || mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /dev/pts /dev/shm
    mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -t tmpfs -o mode=1777 tmpfs /tmp
    mount -t cgroup2 cgroup /sys/fs/cgroup
    mkdir -p /run/lock
    ip link set lo up
fi
modprobe 9pnet_virtio
mkdir -p /mnt/results
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none results /mnt/results &&
    bash /mnt/results/job/guest.sh
sync
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
