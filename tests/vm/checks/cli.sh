# init: script
# limit: 900
# shows: a fabric on each datapath; ping, rewiring, tear-down
out=$(mktemp -d)

own_datapath() {
    python -c 'from topos.kernel.ovs import choose_datapath; print(choose_datapath("auto"))'
}

try() { # try KERNEL DATAPATH: with Open vSwitch's datapath system (of the kernel) or netdev
    [ "$(own_datapath)" = "$1" ] || fails "Open vSwitch does not use the datapath $1"
    # Not "g0 ping": a command of a host reads the rest of the input.
    local commands=(circuits 'rewire rail0 1-3 overwrite' circuits "py g0.cmd('ping -c 1 -W 10', g2.IP())")
    printf '%s\n' "${commands[@]}" exit |
        railyard cli --workload smoke --modes on-demand --time 20 --datapath "$2" 2>&1 | tee "$out/said"
    says "$out/said" 'rail0: 1-3' ' 0% packet loss'
}

own=$(own_datapath) # netdev on one processor with Open vSwitch 3.1, which could not use the kernel's
try "$own" bpf
try "$own" ovs
echo 'install openvswitch /bin/false' >/etc/modprobe.d/none.conf # as on a kernel without the module
modprobe -r openvswitch
try netdev bpf
try netdev ovs
rm /etc/modprobe.d/none.conf
[ "$(ip -o link | wc -l)" = 1 ] || fails "interfaces were left in the first namespace"
