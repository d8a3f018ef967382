#!/bin/bash
# Runs in the virtual machine, started by init.sh as root: unpacks the project into /railyard and runs the checks.
#
# /mnt/results is the folder of results of run.sh, job in it what run.sh puts there for this machine. Of each check a
# line goes to the table (begun; ok or FAILED, name, seconds, commit, kernel, date), with the end of its log if it
# failed, and the log to NAME.log.
set -u
folder=/mnt/results
job=$folder/job
commit=$(cat $job/commit)

say() { echo "$*" | tee -a $folder/table; }

result() { # result STATE NAME SECONDS
    say "$(printf '%-6s %-13s %5d s %s %s %s' "$@" "$commit" "$(uname -r)" "$(date -u +%F)")"
}

left_behind() { # what a check must not leave: processes of the project, interfaces, folders of runs
    find /run/railyard -mindepth 1 -maxdepth 1 -type d 2>/dev/null
    pgrep -af 'railyard|ovs-vswitchd.*/run/railyard' | grep -v -e 'guest\.sh' -e '/init\.sh' -e pgrep
}

run() { # run NAME
    local file=$job/checks/$1.sh log=$folder/$1.log start=$SECONDS status=0 limit left
    limit=$(sed -n 's/^# limit: //p' "$file")
    result begun "$1" 0
    # shellcheck disable=SC2016 # expanded by that shell
    (cd /railyard && log=$log timeout --kill-after=30 "$limit" \
        bash -c '. /mnt/results/job/common.sh && set -x && . "$1"' check "$file") >>"$log" 2>&1 </dev/null || status=$?
    [ $status != 124 ] || echo "not done within $limit s" >>"$log"
    if [ $status = 0 ] && [ -n "$(left_behind)" ]; then
        sleep 10 # what ends a moment later
        left=$(left_behind)
        [ -z "$left" ] || status=left_behind
        echo "$left" >>"$log"
    fi
    if [ $status = 0 ]; then
        result ok "$1" $((SECONDS - start))
    else
        result FAILED "$1" $((SECONDS - start))
        { echo "status $status" && tail -n 12 "$log"; } | sed 's/^/       | /' >>$folder/table
    fi
}

modprobe tun # for /dev/net/tun, which systemd makes before it is used
echo "127.0.1.1 $(cat /etc/hostname)" >>/etc/hosts # sudo looks for it
chown vagrant: /railyard
runuser -u vagrant -- tar -x -f $job/project.tar -C /railyard
say "$(nproc) processors, $(ps -p 1 -o comm=) as init"
while read -r name <&3; do
    run "$name"
done 3<$job/names
touch $job/ended
