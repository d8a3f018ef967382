# init: script
# limit: 900
# shows: a fabric comes up with each datapath; command line, ping over a circuit, rewiring, tear-down
out=$(mktemp -d)
python -c 'from topos.kernel.ovs import choose_datapath as choose; assert choose("auto") == "system"'
for datapath in bpf ovs; do
    # Not "g0 ping": a command of a host reads the rest of the input.
    commands=(circuits 'rewire rail0 1-3 overwrite' circuits "py g0.cmd('ping -c 1 -W 10', g2.IP())")
    printf '%s\n' "${commands[@]}" exit |
        railyard cli --workload smoke --modes on-demand --time 20 --datapath $datapath 2>&1 | tee "$out/$datapath"
    says "$out/$datapath" 'rail0: 1-3' ' 0% packet loss'
done
[ "$(ip -o link | wc -l)" = 1 ] || fails "interfaces were left in the first namespace"
