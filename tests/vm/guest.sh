#!/bin/bash
# Runs in the virtual machine, started by init.sh as root: unpacks the project into /railyard and runs the checks.
#
# /mnt/job is the folder of run.sh. Of each check it writes a line to results/table (ok or FAILED, name, seconds) with the
# end of its log if it failed, and the log to results/NAME.log.
set -u
job=/mnt/job
results=$job/results

say() { echo "$*" | tee -a $results/table; }

left_behind() { # what a check must not leave: processes of the project, interfaces, folders of runs
    find /run/railyard -mindepth 1 -maxdepth 1 -type d 2>/dev/null
    pgrep -af 'railyard|ovs-vswitchd.*/run/railyard' | grep -v -e 'guest\.sh' -e '/init\.sh' -e pgrep
}

run() { # run NAME
    local file=$job/checks/$1.sh log=$results/$1.log start=$SECONDS status=0 limit left
    limit=$(sed -n 's/^# limit: //p' "$file")
    # shellcheck disable=SC2016 # expanded by that shell
    (cd /railyard && timeout --kill-after=30 "$limit" \
        bash -c '. /mnt/job/common.sh && set -x && . "$1"' check "$file") >"$log" 2>&1 </dev/null || status=$?
    [ $status != 124 ] || echo "not done within $limit s" >>"$log"
    if [ $status = 0 ] && [ -n "$(left_behind)" ]; then
        sleep 10 # what ends a moment later
        left=$(left_behind)
        [ -z "$left" ] || status=left_behind
        echo "$left" >>"$log"
    fi
    if [ $status = 0 ]; then
        say "$(printf 'ok     %-18s %5d s' "$1" $((SECONDS - start)))"
    else
        say "$(printf 'FAILED %-18s %5d s   status %s' "$1" $((SECONDS - start)) "$status")"
        tail -n 12 "$log" | sed 's/^/       | /' >>$results/table
    fi
}

modprobe tun # for /dev/net/tun, which systemd makes before it is used
echo "127.0.1.1 $(cat /etc/hostname)" >>/etc/hosts # sudo looks for it
chown vagrant: /railyard
runuser -u vagrant -- tar -x -f $job/project.tar -C /railyard
say "kernel $(uname -r), $(nproc) processors, $(ps -p 1 -o comm=) as init, $(date -u +%F)"
while read -r name <&3; do
    run "$name"
done 3<$job/names
touch $results/ended
