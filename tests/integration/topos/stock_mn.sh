#!/bin/sh
# Runs stock `mn` with the arguments given on a topology file of ours ($1), shut off from the machine: when `mn` meets an
# exception it kills processes by name and deletes files in /tmp, so it gets a process table, a network, a /tmp and an
# Open vSwitch of its own. Everything ends with this script.
# Call: unshare --net --mount --pid --fork --kill-child --mount-proc stock_mn.sh FILE MN-ARGUMENT...
set -eu
topos=$(dirname "$1")
name=$(basename "$1")
shift
ovs=/run/openvswitch
mkdir -p $ovs
mount -t tmpfs tmpfs $ovs
mkdir -p $ovs/project/topos $ovs/project/railyard
cp "$topos"/*.py $ovs/project/topos
cp "$topos"/../railyard/*.py $ovs/project/railyard
mount -t tmpfs tmpfs /tmp
ip link set lo up
export OVS_RUNDIR=$ovs OVS_LOGDIR=$ovs OVS_DBDIR=$ovs HOME=/tmp
cd $ovs
ovsdb-tool create $ovs/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server $ovs/conf.db --remote=punix:$ovs/db.sock --pidfile --detach --no-chdir --log-file 2>/dev/null
ovs-vsctl --no-wait init
ovs-vsctl --no-wait set Open_vSwitch . other_config:userspace-tso-enable="${USERSPACE_TSO:-false}" # as setup.sh: true
ovs-vswitchd unix:$ovs/db.sock --pidfile --detach --no-chdir --log-file 2>/dev/null
exec mn --custom "$ovs/project/topos/$name" "$@"
