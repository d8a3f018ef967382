# init: systemd
# limit: 3600
# shows: set-up as "vagrant up" does it, a run with sudo
printf 'nameserver 10.0.2.3\n' >/etc/resolv.conf
command=$(sed -n 's/.*provision "shell".*inline: "\(.*\)"/\1/p' /railyard/vagrant/Vagrantfile)
cd /
runuser -l vagrant -c "sudo bash -c '$command'"
systemctl is-active openvswitch-switch
ovs-vsctl show
ip -o link >/run/links-before
status=0
runuser -l vagrant -c 'cd /railyard && sudo scripts/run.sh --workload smoke --modes electrical,on-demand --delays 500 \
    --time 20 --steps 1 --repeats 1 --attempts 1 --out results/short' || status=$?
[ $status = 0 ] || [ $status = 8 ] || fails "the run ended with status $status"
runuser -l vagrant -c 'cd /railyard && .venv/bin/railyard plot results/short' || [ $? = 8 ]
[ -z "$(find /railyard ! -user vagrant -print -quit)" ] || fails "root has files in the checkout: $(find /railyard ! -user vagrant)"
ip -o link | diff /run/links-before - || fails "interfaces were left"
systemctl is-system-running || systemctl --failed
