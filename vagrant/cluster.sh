#!/bin/bash
# Lets this virtual machine work with others as one cluster; the Vagrantfile runs it on each at every start:
#
#   cluster.sh NUMBER ADDRESS...    NUMBER of this machine, from 1; addresses of railyard1, railyard2, ...
#
# It gives the machines their names, long frames on the network between them, and SSH without a password from vagrant
# (or root) on each to vagrant on each. The key in ~vagrant/.ssh/railyard, the same on all, is that of the user and
# signs the host key of each machine, so that all know each other without having met.
set -euo pipefail

mtu=9100
home=/home/vagrant/.ssh
key=$home/railyard
number=$1
shift
name=railyard$number
address=${!number}

say() { echo "cluster: $*"; }

# The name of a machine must not lead to its loopback address, which Vagrant may have given it: the others could not
# reach what it names.
sed -i -E 's/[[:space:]]+railyard[1-8]\b//g; /^[0-9a-f.:]+[[:space:]]*$/d' /etc/hosts
for each in $(seq $#); do
    echo "${!each} railyard$each" >>/etc/hosts
done

link=$(ip -o -4 address show to "$address" | awk '{print $2; exit}')
[ -n "$link" ] || {
    say "$name has no interface with the address $address; run: vagrant reload $name" >&2
    exit 1
}
ip link set dev "$link" mtu $mtu ||
    say "$link takes no frames of $mtu bytes; runs need an MTU of the rails (--mtu) of at most its MTU less 50"

chmod 600 "$key"
ssh-keygen -y -f "$key" >"$key.pub"
chown vagrant: "$key" "$key.pub"
grep -qxF "$(<"$key.pub")" $home/authorized_keys || cat "$key.pub" >>$home/authorized_keys
echo "@cert-authority railyard* $(<"$key.pub")" >/etc/ssh/railyard_known_hosts
cat >/etc/ssh/ssh_config.d/railyard.conf <<END
Host railyard*
    User vagrant
    IdentityFile $key
    GlobalKnownHostsFile /etc/ssh/railyard_known_hosts
END
ssh-keygen -q -s "$key" -h -I "$name" -n "$name,$address" /etc/ssh/ssh_host_ed25519_key.pub
echo "HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub" >/etc/ssh/sshd_config.d/railyard.conf
systemctl reload ssh
say "$name is ready at $address on $link"
