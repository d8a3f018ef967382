#!/bin/bash
# Sets up Railyard if necessary, then runs all checks: ruff (lint and format), mypy, pytest.
#
#   sudo scripts/test.sh                     all checks
#   scripts/test.sh                          all checks without the tests that need root
#   sudo scripts/test.sh tests/unit -k ring  ruff and mypy, and pytest with these options
#   sudo scripts/test.sh --campaign 60       no checks, but 60 faults in small runs, which must end as documented
#                                            (--seed N; --parallel N; --fault NUMBER... makes some of them again)
#   sudo scripts/test.sh --soak 1000         no checks, but one run of 1000 points, whose use of memory must not grow
#
# Every test runs once. Only a test that measures time (marked timed) is tried again, and only where the machine did
# not keep up; after three tries it is inconclusive: named at the end, and neither passed nor failed.
set -uo pipefail
# A relative or empty entry of PATH is the working directory, whose programs would run as root.
PATH=$(IFS=: && for folder in $PATH; do [[ $folder != /* ]] || printf '%s:' "$folder"; done)/usr/local/sbin:/usr/sbin:/sbin
export PATH
scripts=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
cd "$scripts/.." || exit 1

case "${1-}" in
    -h | --help)
        sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
        exit 0
        ;;
esac

"$scripts/setup.sh" --brief </dev/null || exit $?
PIP_RETRIES=0 "$scripts/setup.sh" --torch >/dev/null 2>&1 </dev/null ||
    echo "test.sh: scripts/setup.sh --torch does not work here, so the tests that need torch are left out"
if [ "$EUID" -eq 0 ] && [ "$(stat -c %u .)" != 0 ]; then # leave nothing that the owner of the checkout cannot delete
    caches=/var/cache/railyard
    export RUFF_CACHE_DIR=$caches/ruff MYPY_CACHE_DIR=$caches/mypy HYPOTHESIS_STORAGE_DIRECTORY=$caches/hypothesis
    export PYTEST_ADDOPTS="${PYTEST_ADDOPTS-} -o cache_dir=$caches/pytest"
fi

case "${1-}" in
    --campaign | --fault | --soak)
        PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1 exec "$scripts/_venv.py" -m tests.campaign "$@"
        ;;
esac

sshd=/var/lib/railyard/sshd
unpack_sshd() { # tests/cluster starts sshds of its own; the package would start one on this machine, so it is unpacked
    local debs
    debs=$(mktemp -d) || return
    mkdir "$debs/partial"
    local fetch=(apt-get -qq -y -o "Dir::Cache::archives=$debs" --no-install-recommends --download-only install)
    "${fetch[@]}" openssh-server || { apt-get -qq update && "${fetch[@]}" openssh-server; }
    rm -rf "$sshd" && mkdir -p "$sshd"
    find "$debs" -name '*.deb' -exec dpkg -x {} "$sshd" \;
    rm -rf "$debs"
    [ -x $sshd/usr/sbin/sshd ]
}
install_browser() { # tests/browser opens the page in Debian's; a browser needs some hundred packages, so it is installed
    export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
    local install=(apt-get -qq -y -o DPkg::Lock::Timeout=600 --no-install-recommends install chromium chromium-driver)
    "${install[@]}" || { apt-get -qq update && "${install[@]}"; }
}
fetch_programs() { # those that tests/browser and tests/cluster start
    { command -v chromium && command -v chromedriver; } >/dev/null || install_browser >/dev/null 2>&1 </dev/null ||
        echo "test.sh: chromium and chromium-driver could not be installed, so tests/browser is left out"
    [ -x $sshd/usr/sbin/sshd ] || command -v sshd >/dev/null ||
        unpack_sshd >/dev/null 2>&1 </dev/null ||
        echo "test.sh: openssh-server could not be fetched, so tests/cluster is left out (or install it by hand)"
}
fetched=
if [ "$EUID" -eq 0 ]; then
    fetch_programs & # nothing but two kinds of tests waits for it, and nothing breaks an installation off
    fetched=$!
else
    echo "test.sh: not root, so the tests that need root are left out; for all of them: sudo scripts/test.sh"
fi

unset PYTHONDONTWRITEBYTECODE # tests start hundreds of processes, each of which would compile the project anew

failed=()
check() { # check NAME ARGUMENTS...: one tool of the virtual environment
    echo "== $1"
    "$scripts/_venv.py" -m "${@:2}" || failed+=("$1")
}
types_checked() { # waits for mypy, and prints what it said; also for what the other tests need
    echo "== mypy"
    wait "$mypy" || failed+=("mypy")
    mypy=
    cat "$said"
    [ -z "$fetched" ] || wait "$fetched"
    fetched=
}
export RAILYARD_TIMED_TALLY # a file: each run of pytest adds how many timed tests were inconclusive, and of how many
RAILYARD_TIMED_TALLY=$(mktemp)
said=$(mktemp)
mypy=
trap '[ -z "$mypy" ] || kill "$mypy"; rm -f "$RAILYARD_TIMED_TALLY" "$said"' EXIT
export RAILYARD_TEST_RUN=$$ # what runs beside a test is ours: it does not make a timed test inconclusive
"$scripts/_venv.py" -m mypy >"$said" 2>&1 & # one core is enough for it
mypy=$!
check "ruff check" ruff check .
check "ruff format" ruff format --check .
if [ "$#" -gt 0 ]; then
    types_checked
    check "pytest" pytest "$@"
else # most of what needs root measures time on real packets: one after another, and nothing beside it
    check "pytest (on all cores)" pytest --ignore tests/integration --ignore tests/cluster --ignore tests/browser \
        -n auto --dist worksteal # a core that is done takes over half of what another has left
    types_checked
    parts=(tests/cluster tests/integration tests/browser)
    check "pytest (with root or in a browser, three at a time)" pytest "${parts[@]}" -m beside -n 3 --dist worksteal
    check "pytest (with root or in a browser, alone)" pytest "${parts[@]}" -m "not beside"
fi

awk '{ inconclusive += $1; timed += $2 } END { if (timed) printf "test.sh: %d of %d timed tests inconclusive%s\n",
    inconclusive, timed, inconclusive ? ": the machine did not keep up (named above)" : "" }' "$RAILYARD_TIMED_TALLY"
if [ "${#failed[@]}" -gt 0 ]; then
    (IFS=,; echo "test.sh: failed: ${failed[*]}") >&2
    exit 1
fi
echo "test.sh: all checks passed"
