#!/usr/bin/env bash
# Sets up what is missing, then runs the main job: what does a photonic rail cost against an electrical one?
#
#   sudo scripts/run.sh                      the 16-GPU Llama-3-8B job, every mode and delay
#   sudo scripts/run.sh --quick              the same, shorter
#   sudo scripts/run.sh experiment.yaml      an experiment from a file
#   sudo scripts/run.sh --help               all options (those of scripts/rail_reconfiguration.py)
set -euo pipefail
scripts=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

if [ "$EUID" -ne 0 ]; then
    for option in "$@"; do
        case $option in
            -h | --help) exec "$scripts/rail_reconfiguration.py" "$@" ;;
        esac
    done
    echo "run.sh: network namespaces and Open vSwitch need root; run: sudo scripts/run.sh $*" >&2
    exit 3
fi

"$scripts/setup.sh" --brief </dev/null
exec "$scripts/_venv.py" "$scripts/rail_reconfiguration.py" "$@"
