#!/bin/bash
# Builds and tests everything. Exits 0 only if every suite of every build passed.
set -u
cd "$(dirname "$0")" || exit 1

usage() {
    cat <<'EOF'
Usage: ./test.sh [--fast] [-k REGEX]
  --fast     the debug build (AddressSanitizer, UndefinedBehaviorSanitizer) only
  -k REGEX   only the suites whose name matches, in the debug and the release build
Installs what is missing, builds, runs every suite, and prints each one's own closing line.
EOF
}

fast=no
filter=()
while [ $# -gt 0 ]; do
    case $1 in
    --fast) fast=yes ;;
    -k)
        [ $# -ge 2 ] || { usage >&2; exit 64; }
        filter=(-R "$2")
        shift
        ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 64 ;;
    esac
    shift
done

exec </dev/null
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}
jobs=$(nproc)
passed=0
failed=0
started=$(date +%s)

say() {
    printf '\n== [%4ds] %s\n' "$(($(date +%s) - started))" "$*"
}

result() {
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
        echo "ok: $2"
    else
        failed=$((failed + 1))
        echo "FAILED: $2"
    fi
}

# A step that is one test by itself.
step() {
    local name=$1
    shift
    say "$name"
    "$@"
    result $? "$name"
}

build() {
    local preset=$1
    say "build: preset $preset"
    cmake --preset "$preset" >/dev/null && cmake --build --preset "$preset" -- --quiet
    local status=$?
    result $status "build of preset $preset"
    return $status
}

# Each suite ends with a line of its own test runner's: shown here even when all went well.
closing_lines() {
    awk '/^[0-9]+\/[0-9]+ Test(ing)?: / { name = $3 }
         /^[0-9]+%: Checks: / || /^=* ?[0-9]+ (passed|failed|skipped).* in [0-9.]+s/ ||
         /^[0-9]+ passed, [0-9]+ failed/ { print "   " name ": " $0 }' \
        "$1/Testing/Temporary/LastTest.log"
}

# How often each kind of fault happened in the simulator.
faults_table() {
    sed -n 's/^\( *[0-9]\+  [A-Z_]\+  .*\)/   \1/p; s/^\([0-9]\+ seeds, .*\)/   \1/p' \
        "$1/Testing/Temporary/LastTest.log"
}

# Runs the suites of one build and adds up CTest's own count.
run_suites() {
    local preset=$1 dir=$2
    shift 2
    say "suites: preset $preset"
    local log total bad
    log=$(mktemp)
    ctest --preset "$preset" -j "$jobs" "$@" | tee "$log"
    closing_lines "$dir"
    [ "$preset" != release ] || faults_table "$dir"
    total=$(sed -n 's/.*tests failed out of \([0-9]*\).*/\1/p' "$log")
    bad=$(sed -n 's/.*tests passed, \([0-9]*\) tests failed.*/\1/p' "$log")
    rm -f "$log"
    if [ "${total:-0}" = 0 ]; then
        result 1 "no suite ran with preset $preset"
        return
    fi
    passed=$((passed + total - bad))
    failed=$((failed + bad))
}

# As somebody builds it who knows nothing of presets.
plain_build() {
    local dir=$TMPDIR/plain
    cmake -S . -B "$dir" -DCMAKE_BUILD_TYPE=Release >/dev/null &&
        cmake --build "$dir" -j "$jobs" >"$dir/build.log" 2>&1 &&
        [ -x "$dir/bin/lockbrokerd" ] && [ -x "$dir/bin/lockbroker" ] &&
        [ -e "$dir/lib/liblockbroker.so" ] &&
        ctest --test-dir "$dir" -R '^unit' -j "$jobs" --output-on-failure
    local status=$?
    [ $status = 0 ] || tail -n 40 "$dir/build.log"
    rm -rf "$dir"
    return $status
}

# The fuzz preset is clang's debug build; warnings differ with optimisation.
clang_build() {
    local dir=$TMPDIR/clang
    cmake -S . -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang \
        -DLB_WERROR=ON >/dev/null && cmake --build "$dir" -- --quiet
    local status=$?
    rm -rf "$dir"
    return $status
}

fuzz_a_little() {
    local harness status=0
    for harness in build-fuzz/bin/fuzz_*; do
        local name=${harness##*/fuzz_} corpus
        corpus=$(mktemp -d)
        echo "fuzz_$name: 20 s"
        "$harness" -max_total_time=20 -print_final_stats=0 -verbosity=0 -artifact_prefix="$corpus/" \
            "$corpus" "tests/fuzz/corpus/$name" || status=1
        rm -rf "$corpus"
    done
    return $status
}

# The suites once more, with counters, and what they reached of each folder.
coverage() {
    cmake --preset coverage >/dev/null && cmake --build --preset coverage --target coverage
}

# Everything that tests start has a path in TMPDIR among its arguments.
nothing_is_left() {
    local process status=0
    for process in /proc/[0-9]*; do
        if tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -qF "$TMPDIR/"; then
            echo "left running: ${process#/proc/} $(tr '\0' ' ' <"$process/cmdline")"
            kill -9 "${process#/proc/}"
            status=1
        fi
    done
    return $status
}

./quickstart.sh --test-deps || exit 1

# Paths of Unix sockets are short, so this one is too, whatever TMPDIR was.
TMPDIR=$(mktemp -d /tmp/lbt.XXXXXX)
export TMPDIR
chmod 755 "$TMPDIR" # some tests connect as another user
trap 'rm -rf "$TMPDIR"' EXIT

if build debug; then
    run_suites debug build-debug "${filter[@]}"
fi
if [ "$fast" = no ] && build release; then
    run_suites release build "${filter[@]}"
fi
if [ "$fast" = no ] && [ ${#filter[@]} = 0 ]; then
    if build fuzz; then
        run_suites fuzz build-fuzz -R '^(unit|fuzz)'
        step "fuzzing" fuzz_a_little
    fi
    step "coverage" coverage
    step "clang, release, warnings are errors" clang_build
    step "plain build and its unit tests" plain_build
fi
step "nothing is left running" nothing_is_left

say "all"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
