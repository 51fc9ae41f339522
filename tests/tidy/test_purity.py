"""The core asks for nothing but memory: no clock, no file, no socket can be behind its door.

All its objects are joined into one; what is then still undefined is all that it asks of others.
"""

import os
import re
import subprocess

import source

# From the C library: memory, texts, and the end of the process after a broken invariant.
ALLOWED = {
    "abort", "calloc", "free", "malloc", "memchr", "memcmp", "memcpy", "memmove", "memset",
    "snprintf", "strcmp", "strlen", "strncmp", "strnlen",
    "fprintf", "stderr",  # lb_assert
    "rng_below", "rng_init",
}

# What compilers put in by themselves: position independence, hardening, sanitizers, counters.
BY_COMPILERS = re.compile(r"_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|bcmp|"
                          r"__(mem|str)\w+_chk|__s?n?v?f?printf_chk|"
                          r"__(asan|ubsan|lsan|sanitizer|gcov|llvm|sancov)_\w+|__start_\w+|__stop_\w+")


def undefined(archive, tmp_path):
    joined = tmp_path / "joined.o"
    subprocess.run(["ld", "-r", "--whole-archive", archive, "-o", joined], check=True)
    listing = subprocess.run(["nm", "-u", joined], check=True, text=True, capture_output=True)
    return {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines() if line.strip()}


def stranger(name):
    return name not in ALLOWED and not BY_COMPILERS.fullmatch(name)


def test_core(tmp_path):
    asked = undefined(os.environ["LB_CORE_ARCHIVE"], tmp_path)
    assert "calloc" in asked and "rng_below" in asked
    source.show([f"daemon/core uses {name}" for name in sorted(asked) if stranger(name)])


def test_an_impure_archive_is_seen(tmp_path):
    (tmp_path / "impure.c").write_text("#include <time.h>\nlong f(void) { return time(0); }\n",
                                       encoding="utf-8")
    subprocess.run([os.environ.get("CC", "cc"), "-c", "impure.c"], cwd=tmp_path, check=True)
    subprocess.run(["ar", "rc", "impure.a", "impure.o"], cwd=tmp_path, check=True)
    asked = undefined(tmp_path / "impure.a", tmp_path)
    assert [name for name in asked if stranger(name)] == ["time"]
