#!/bin/bash
# Sets up Railyard if necessary, then runs an experiment: `railyard run NAME|FILE.yaml [options]`. Without a name it is
# the rail experiment: step time of a training job on optical rails against electrical ones.
#
#   sudo scripts/run.sh                      the 16-GPU Llama-3-8B job, default modes and delays
#   sudo scripts/run.sh --quick              fewer modes and delays, in under two minutes
#   sudo scripts/run.sh failover --quick     another experiment
#   sudo scripts/run.sh experiment.yaml      an experiment from a file
#   sudo scripts/run.sh NAME --help          all options of an experiment
set -euo pipefail
# A relative or empty entry of PATH is the working directory, whose programs would run as root.
PATH=$(IFS=: && for folder in $PATH; do [[ $folder != /* ]] || printf '%s:' "$folder"; done)/usr/local/sbin:/usr/sbin:/sbin
export PATH
scripts=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

typed=$*
case "${1-}" in
    "" | -*) set -- rails "$@" ;;
esac
for option in "$@"; do
    case $option in
        -h | --help | --predict) exec "$scripts/railyard.py" run "$@" ;;
    esac
done
if [ "$EUID" -ne 0 ]; then
    case " $* " in # these need no root, so that only the set-up is left out
        " allocation "* | " fabric-cost "* | " mesh "* | " opus "* | *" --list "* | *" --show "* | *" --print-plan "*)
            exec "$scripts/railyard.py" run "$@" ;;
    esac
    echo "run.sh: network namespaces and Open vSwitch need root; run: sudo scripts/run.sh $typed" >&2
    exit 3
fi

"$scripts/setup.sh" --brief </dev/null
exec "$scripts/railyard.py" run "$@"
