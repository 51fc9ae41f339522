#!/bin/sh
# One command from a fresh Debian 12 to a lock that is held, waited for, and freed by a kill -9.
set -eu
export PATH

usage() {
    cat <<'EOF'
Usage: ./quickstart.sh                   build, start a private Redis and broker, show the main job
       ./quickstart.sh run KEY -- CMD    the same set-up, then run CMD under the lock KEY
       ./quickstart.sh --deps            only install the packages for building and running
       ./quickstart.sh --test-deps       the same, and those that the tests need
       ./quickstart.sh --bench-deps      the same, and those that the benchmarks need beside
       ./quickstart.sh --help            print this

Packages are installed with apt-get, as root or with sudo, and only those that are missing.
Everything that this script starts ends with it. `run` passes CMD's exit code through, and takes the
options of `lockbroker run` between KEY and --.
EOF
}

# These lists are the only ones: test.sh asks for two of them through --test-deps.
PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libuv1-dev libhiredis-dev libjansson-dev
libinih-dev libbsd-dev libmd-dev libsystemd-dev scdoc redis-server"
TEST_PACKAGES="make check libsubunit-dev clang clang-format libclang-rt-14-dev python3
python3-pytest python3-redis shellcheck mandoc gcovr spin liblua5.1-0-dev faketime
nftables iproute2 util-linux valgrind"
BENCH_PACKAGES="python3-matplotlib nodejs npm"

say() {
    printf '\n== %s\n' "$*"
}

fail() {
    echo "quickstart: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

is_installed() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

# Debian starts a server when its package is installed. Nobody asked for a Redis on the usual port
# here, so for the time of the installation services are told not to start.
hold_services_back() {
    policy=/usr/sbin/policy-rc.d
    [ ! -e "$policy" ] || return 0
    trap 'as_root rm -f "$policy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

# Takes the packages as words. In a subshell: its traps end with it.
install_packages() (
    missing=""
    for package in "$@"; do
        is_installed "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || exit 0
    command -v apt-get >/dev/null || fail "there is no apt-get here; what it would install:$missing"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
        fail "installing packages needs root: run this as root, or install:$missing"
    say "installing:$missing"
    hold_services_back
    log=$(mktemp)
    # A list of packages that cannot be refreshed may still be good enough.
    apt_get update >"$log" 2>&1 || cat "$log"
    # shellcheck disable=SC2086 # a list of words
    if ! apt_get install -y --no-install-recommends $missing >"$log" 2>&1; then
        cat "$log"
        rm -f "$log"
        fail "the packages could not be installed"
    fi
    rm -f "$log"
)

build() {
    say "building (build/bin)"
    # Without the tests: they need more packages.
    cmake --preset release -DLB_TESTS=OFF >/dev/null
    cmake --build --preset release -- --quiet
}

# Ends what was started, the newest first: clients, the broker, Redis.
stop_all() {
    status=$?
    trap - EXIT
    trap '' INT TERM HUP
    for pid in $started; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$dir"
    exit "$status"
}

has_ended() {
    case $(cat "/proc/$1/stat" 2>/dev/null) in
    "" | *") Z "*) return 0 ;;
    esac
    return 1
}

# Gives up after half a minute, or when what was started last is gone.
wait_for() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 600 ] || has_ended "${started%% *}"; then
            cat "$dir"/*.log >&2
            fail "this did not come: $*"
        fi
        sleep 0.05
    done
}

# Servers get a session of their own: Ctrl-C is for the commands under a lock, not for what the lock
# depends on.
start_server() {
    setsid "$@" </dev/null >"$dir/$1.log" 2>&1 &
    started="$! $started"
}

start_all() {
    temporary=${TMPDIR:-/tmp}
    # The path of a Unix socket has at most 107 bytes.
    [ ${#temporary} -le 70 ] || temporary=/tmp
    dir=$(mktemp -d "$temporary/lockbroker.XXXXXX")
    started=""
    trap stop_all EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    start_server redis-server --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir"
    wait_for redis-cli -s "$dir/redis.sock" ping
    LOCKBROKER_SOCKET=$dir/broker.sock
    export LOCKBROKER_SOCKET
    say "a Redis to throw away: data_loss = ignore, so no wait of 30 s after its start" >&2
    start_server lockbrokerd --socket "$LOCKBROKER_SOCKET" --backend "redis+unix://$dir/redis.sock" \
        --set data_loss=ignore
    wait_for lockbroker ping
}

start_client() {
    "$@" &
    client=$!
    started="$client $started"
}

is_held() {
    lockbroker query "$1"
}

is_waited_for() {
    lockbroker query "$1" --json | grep -q '"waiters":1'
}

show() {
    say "a command under a lock; it finds the fence in its environment"
    # shellcheck disable=SC2016 # for the inner shell
    lockbroker run nightly-backup -- sh -c 'echo "   I hold $LOCKBROKER_KEY, fence $LOCKBROKER_FENCE"'

    say "a second one waits, and is handed the lock"
    # shellcheck disable=SC2016 # for the inner shell
    start_client lockbroker run nightly-backup --note "the first" -- sh -c \
        'echo "   first: begins"; until [ -e "$0" ]; do sleep 0.05; done; echo "   first: ends"' \
        "$dir/go"
    wait_for is_held nightly-backup
    start_client lockbroker run nightly-backup --note "the second" -- echo "   second: has it now"
    wait_for is_waited_for nightly-backup
    lockbroker list
    : >"$dir/go"
    wait "$client"

    say "a holder is killed with -9: its lock frees at once, not when its lease of 30 s runs out"
    start_client lockbroker run nightly-backup --note "to be killed" -- sleep 600
    holder=$client
    wait_for is_held nightly-backup
    lockbroker query nightly-backup
    start_client lockbroker run nightly-backup --wait 10s -- date +%s%3N >"$dir/granted"
    wait_for is_waited_for nightly-backup
    killed=$(date +%s%3N)
    kill -9 "$holder"
    wait "$client"
    echo "   the next one had it $(($(cat "$dir/granted") - killed)) ms after the kill"

    say "done; the same for your own command: ./quickstart.sh run KEY -- CMD"
}

# Ctrl-C is the command's: what it makes of it is the exit code.
run() {
    trap ':' INT
    code=0
    lockbroker run "$@" || code=$?
    exit "$code"
}

main() {
    command=${1-}
    [ $# = 0 ] || shift
    case "$command $#" in
    " 0" | "--deps 0" | "--test-deps 0" | "--bench-deps 0") ;;
    "--help 0" | "-h 0") usage; exit 0 ;;
    "run 0" | "run 1") usage >&2; exit 64 ;;
    "run "*) ;;
    *) usage >&2; exit 64 ;;
    esac

    # shellcheck disable=SC2086 # lists of words
    case $command in
    --deps) install_packages $PACKAGES; exit 0 ;;
    --test-deps) install_packages $PACKAGES $TEST_PACKAGES; exit 0 ;;
    --bench-deps) install_packages $PACKAGES $TEST_PACKAGES $BENCH_PACKAGES; exit 0 ;;
    *) install_packages $PACKAGES >&2 ;;
    esac
    here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
    (cd -- "$here" && build) >&2
    PATH=$here/build/bin:$PATH
    start_all
    "${command:-show}" "$@"
}

main "$@"
