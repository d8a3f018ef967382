# init: script
# limit: 900
# shows: a fabric comes up with each datapath; command line, ping over a circuit, rewiring, tear-down
out=$(mktemp -d)
for datapath in bpf mirred ovs; do
    printf '%s\n' circuits 'g0 ping -c 1 -W 5 g2' 'rewire rail0 1-3 overwrite' circuits 'g0 ping -c 1 -W 5 g2' exit |
        railyard cli --workload smoke --modes on-demand --time 20 --datapath $datapath | tee "$out/$datapath"
done
[ "$(ip -o link | wc -l)" = 1 ] || fails "interfaces were left in the first namespace"
