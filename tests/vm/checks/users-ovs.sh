# init: script
# limit: 900
# shows: another user's Open vSwitch stays as it is
out=$(mktemp -d)
modprobe openvswitch
service openvswitch-switch start
ovs-vsctl add-br theirs -- add-br rail0 -- set bridge theirs other_config:datapath-id=00000000000000aa
ip link add v0 type veth peer name v1
ip link set v0 up && ip link set v1 up
ovs-vsctl add-port theirs v0 -- add-port rail0 internal0 -- set interface internal0 type=internal
ovs-ofctl add-flow theirs 'priority=7,in_port=1,actions=drop'
ovs-ofctl add-flow rail0 'priority=9,udp,tp_dst=7,actions=NORMAL'

state() { # all that another user would see; without counters and durations
    ovs-vsctl show
    ovs-vsctl --columns=name,other_config,external_ids,ports list bridge
    ovs-vsctl list-ports theirs && ovs-vsctl list-ports rail0
    ovs-appctl dpctl/show | grep -v -e lookups -e flows: -e masks -e cache
    ovs-ofctl dump-flows --no-stats theirs
    ovs-ofctl dump-flows --no-stats rail0
    ip -o link | sed 's/ state.*//'
    ip netns list
    cat /run/openvswitch/*.pid
    sysctl -a 2>/dev/null | grep -v -e random -e file-nr -e inode -e dentry -e pty.nr -e ns_last_pid -e entropy -e _count
}

state >"$out/before"
printf '%s\n' circuits exit | railyard cli --workload smoke --modes on-demand --time 20
state >"$out/after"
diff "$out/before" "$out/after" || fails "a run changed what is not its own"

mkfifo "$out/commands"
railyard cli --workload smoke --modes on-demand --time 20 <"$out/commands" &
run=$!
exec 5>"$out/commands"
echo 'sh touch '"$out/up" >&5
for _ in $(seq 300); do
    [ ! -e "$out/up" ] || break
    sleep 1
done
[ -e "$out/up" ] || fails "the fabric did not come up"
[ "$(pgrep -c -f 'ovs-vswitchd.*/run/railyard')" -ge 1 ] || fails "the run has no switch of its own"
kill -KILL $run
exec 5>&-
for _ in $(seq 60); do
    pgrep -f 'ovs-vswitchd.*/run/railyard' >/dev/null || break
    sleep 1
done
state >"$out/after"
diff "$out/before" "$out/after" || fails "a run that was killed changed what is not its own"
railyard cli --workload smoke --modes on-demand --time 20 </dev/null # the next run cleans up what was left
state >"$out/after"
diff "$out/before" "$out/after" || fails "the run after it changed what is not its own"
ovs-vsctl del-br theirs -- del-br rail0
ip link del v0
service openvswitch-switch stop
