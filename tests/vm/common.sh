# shellcheck shell=bash
# What several checks share: guest.sh reads it before a check, which runs as root in /railyard.
set -euo pipefail
export PATH=/railyard/.venv/bin:$PATH PYTHONPATH=/railyard:/railyard/tests/support

fails() { # fails SENTENCE
    echo "FAILED: $1" >&2
    exit 1
}

run_railyard() { # run_railyard ARGUMENT...: a run that may be called NOT FAITHFUL (status 8), as software emulation is
    local status=0
    railyard "$@" || status=$?
    [ $status = 0 ] || [ $status = 8 ] || fails "railyard $1 ended with status $status"
}

says() { # says FILE TEXT...: the file has each text
    local file=$1 text
    shift
    for text in "$@"; do
        grep -qF -e "$text" "$file" || fails "$file does not say: $text"
    done
}

tests() { # tests ARGUMENT...: tests that are not timed and have not passed before, each named in the log as it ends
    # shellcheck disable=SC2154 # of guest.sh
    local log=$log pytest=(python -m pytest --no-header -p no:cacheprovider -m "root and not timed") collected others
    if grep -q '^tests/.* PASSED' "$log"; then # names the others: --deselect would also take longer names
        collected=$("${pytest[@]}" -q --collect-only "$@" | grep '^tests/.*::')
        mapfile -t others < <(grep -vxF -f <(sed -n 's/^\(tests\/.*\) PASSED.*/\1/p' "$log") <<<"$collected")
        [ ${#others[@]} != 0 ] || return 0
        set -- "${others[@]}"
    fi
    "${pytest[@]}" -v -rs -o faulthandler_timeout=600 "$@"
}
