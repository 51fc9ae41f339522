#!/bin/sh
# One command from a fresh Debian 12 to a lock that is held, waited for, and freed by a kill -9.
set -eu

usage() {
    cat <<'EOF'
Usage: ./quickstart.sh                   build, start a private Redis and broker, show the main job
       ./quickstart.sh run KEY -- CMD    the same set-up, then run CMD under the lock KEY
       ./quickstart.sh --deps            only install the packages for building and running
       ./quickstart.sh --test-deps       the same, and those that the tests need
       ./quickstart.sh --help            print this

Packages are installed with apt-get, as root or with sudo, and only those that are missing.
Everything that this script starts ends with it.
EOF
}

# These two lists are the only ones: test.sh asks for them through --test-deps.
PACKAGES="gcc libc6-dev cmake ninja-build pkg-config libuv1-dev libhiredis-dev libjansson-dev
libinih-dev libbsd-dev libsystemd-dev scdoc redis-server"
TEST_PACKAGES="check libsubunit-dev clang clang-format libclang-rt-14-dev python3 python3-pytest
python3-redis shellcheck mandoc universal-ctags binutils procps iproute2 git"

say() {
    printf '\n== %s\n' "$*"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "quickstart: installing packages needs root: run this as root, or install: $missing" >&2
        exit 1
    fi
}

is_installed() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
}

# Debian starts a server when its package is installed. Nobody asked for a Redis on the usual port
# here, so for the time of the installation services are told not to start.
install_without_starting() {
    policy=/usr/sbin/policy-rc.d
    made_policy=no
    if [ ! -e "$policy" ]; then
        made_policy=yes
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    status=0
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $1 \
        </dev/null || status=$?
    [ "$made_policy" = no ] || as_root rm -f "$policy"
    return "$status"
}

install_packages() {
    missing=""
    for package in $1; do
        is_installed "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    say "installing:$missing"
    as_root apt-get update </dev/null
    install_without_starting "$missing"
}

build() {
    say "building (build/bin)"
    # Without the tests: they need more packages.
    cmake --preset release -DLB_TESTS=OFF >/dev/null
    cmake --build --preset release -- --quiet
}

stop_all() {
    status=$?
    trap - EXIT
    for pid in $started; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in $started; do
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$dir"
    exit "$status"
}

wait_for() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 200 ]; then
            echo "quickstart: gave up waiting for: $*" >&2
            cat "$dir"/*.log >&2
            exit 1
        fi
        sleep 0.05
    done
}

is_held() {
    lockbroker query "$1"
}

is_waited_for() {
    lockbroker query "$1" --json | grep -q '"waiters":1'
}

start_all() {
    dir=$(mktemp -d)
    started=""
    trap stop_all EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    redis-server --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" \
        >"$dir/redis.log" 2>&1 &
    started="$started $!"
    wait_for redis-cli -s "$dir/redis.sock" ping
    LOCKBROKER_SOCKET=$dir/broker.sock
    export LOCKBROKER_SOCKET
    lockbrokerd --socket "$LOCKBROKER_SOCKET" --backend "redis+unix://$dir/redis.sock" \
        >"$dir/broker.log" 2>&1 &
    started="$started $!"
    wait_for lockbroker ping
}

# stop_all waits for the broker, which waits for its clients: they are stopped first.
start_holder() {
    "$@" &
    holder=$!
    started="$holder $started"
}

show() {
    say "a command under a lock; it finds the fence in its environment"
    # shellcheck disable=SC2016 # for the inner shell
    lockbroker run nightly-backup -- sh -c 'echo "   I hold $LOCKBROKER_KEY, fence $LOCKBROKER_FENCE"'

    say "a second one waits, and is handed the lock"
    start_holder lockbroker run nightly-backup --note "the first" -- \
        sh -c 'echo "   first: begins"; until [ -e '"$dir"'/go ]; do sleep 0.05; done; echo "   first: ends"'
    wait_for is_held nightly-backup
    lockbroker list
    lockbroker run nightly-backup --note "the second" -- echo "   second: has it now" &
    second=$!
    started="$second $started"
    wait_for is_waited_for nightly-backup
    : >"$dir/go"
    wait "$second"

    say "a holder is killed with -9: its lock frees at once, not when a lease runs out"
    start_holder lockbroker run nightly-backup --close -- sleep 600
    wait_for is_held nightly-backup
    kill -9 "$holder"
    lockbroker run nightly-backup --wait 10s -- echo "   the next one has it"

    say "done; the same for your own command: ./quickstart.sh run KEY -- CMD"
}

main() {
    command=show
    case "${1-}" in
    "") ;;
    run)
        command=run
        [ $# -ge 3 ] || { usage >&2; exit 64; }
        ;;
    --deps | --test-deps)
        [ $# = 1 ] || { usage >&2; exit 64; }
        command=$1
        ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 64 ;;
    esac

    here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
    case $command in
    --deps) install_packages "$PACKAGES"; exit 0 ;;
    --test-deps) install_packages "$PACKAGES $TEST_PACKAGES"; exit 0 ;;
    esac
    (cd "$here" && install_packages "$PACKAGES" && build) >&2
    PATH=$here/build/bin:$PATH
    start_all
    if [ "$command" = show ]; then
        show
    else
        lockbroker "$@"
    fi
}

main "$@"
