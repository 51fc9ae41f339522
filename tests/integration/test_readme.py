"""What README.md shows is run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lockbroker import LOCK_PREFIX, PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert found, language
    return found


@pytest.fixture
def run(lab, daemon):
    """Runs a program where the scripts of the examples are, against a broker of its own."""
    for script in ("deploy.sh", "backup.sh"):
        Path(lab.path(script)).write_text(f"#!/bin/sh\necho {script} ran\n", encoding="utf-8")
        os.chmod(lab.path(script), 0o755)
    env = {**os.environ, "LOCKBROKER_SOCKET": daemon.socket_path,
           "PATH": os.environ["LOCKBROKER_BIN"] + ":" + os.environ["PATH"]}
    return lambda *argv: subprocess.run(argv, cwd=lab.directory, env=env, text=True, check=False,
                                        capture_output=True, timeout=PATIENCE)


@pytest.fixture
def shell(run):
    return lambda line: run("sh", "-c", line.replace("build/bin/", ""))


def commands():
    return [line for block in blocks("sh") for line in block.splitlines()]


def test_commands_of_the_tool(shell, client):
    lines = [line for line in commands() if re.match(r"(build/bin/)?lockbroker ", line)]
    assert len(lines) == 5
    for line in lines:
        done = shell(line)
        if " run " in line:
            assert done.returncode == 0 and "ran" in done.stdout, done
    client.ok("acquire", key="deploy")
    outcomes = {line.split()[1]: shell(line) for line in lines if "deploy" in line}
    assert outcomes["run"].returncode == 75
    assert outcomes["query"].returncode == 0 and "a client of this broker" in outcomes["query"].stdout
    assert outcomes["break"].returncode == 0
    client.event("lost", key="deploy", reason="broken")
    wait_until(lambda: shell("lockbroker query deploy").returncode == 1, "the lock is free")


def test_commands_of_the_scripts_and_the_daemon_are_right():
    """The scripts and the daemon are run by other tests: here it is enough that they understand."""
    usage = (ROOT / "quickstart.sh").read_text(encoding="utf-8")
    lines = [line for line in commands() if "lockbroker " not in line]
    assert len(lines) == 3
    for line in lines:
        if line.startswith("./quickstart.sh"):
            assert re.sub(r" .*", "", line) in usage
            assert line == "./quickstart.sh" or " run " in line and " -- " in line
        else:
            argv = line.replace("build/bin/lockbrokerd", os.environ["LOCKBROKERD"]).split()
            subprocess.run([*argv, "--check-config"], check=True, timeout=PATIENCE)


def test_python(run):
    [program] = blocks("python")
    done = run(sys.executable, "-c", program)
    assert re.fullmatch(r"mine, with fence \d+\nreleased\n", done.stdout), done


def test_json(client):
    [line] = blocks("json")
    grant = client.ok("acquire", key="invoices/2026-11", id=1)
    blank = re.compile(r"(?<=[a-z]\":)\d+")
    assert blank.sub("0", line.strip()) == blank.sub("0", grant.line.decode())


def test_c(tmp_path):
    [snippet] = blocks("c")
    program = tmp_path / "example.c"
    program.write_text("#include <lockbroker.h>\n#include <stdio.h>\nvoid do_the_work(int64_t fence);\n"
                       f"void example(void);\nvoid example(void)\n{{\n{snippet}}}\n", encoding="utf-8")
    subprocess.run(["cc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I",
                    ROOT / "client" / "lib", program], check=True)


def test_what_a_wait_after_a_loss_looks_like(lab):
    """The console as it is shown, with the defaults, on a Redis that was emptied."""
    [console] = blocks("console")
    redis = lab.redis()
    daemon = lab.daemon(redis, data_loss="quarantine")
    daemon.client().request("acquire", key="first")  # from now on the broker knows this Redis
    env = {**os.environ, "LOCKBROKER_SOCKET": daemon.socket_path,
           "PATH": os.environ["LOCKBROKER_BIN"] + ":" + os.environ["PATH"]}
    flush, run, *said = console.splitlines()
    subprocess.run(flush.removeprefix("$ ").replace("redis-cli", f"redis-cli -s {redis.path}"),
                   shell=True, check=True, env=env, capture_output=True, timeout=PATIENCE)
    done = subprocess.run(run.removeprefix("$ "), shell=True, check=False, env=env, text=True,
                          capture_output=True, timeout=PATIENCE)
    number = re.compile(r"\d+m?s")
    assert done.returncode == 69
    assert [number.sub("N", line) for line in done.stderr.splitlines()] == [
        number.sub("N", line) for line in said]
    stats = daemon.client().ok("stats")
    assert 0 < stats["gauges"]["quarantine_ms"] <= 31000
    assert {"reasserted", "unavailable", "clock_steps"} <= stats["counters"].keys()
    daemon.wait_log(event="quarantine")


def test_acl_in_the_manual():
    manual = (ROOT / "daemon" / "lockbrokerd.8.scd").read_text(encoding="utf-8")
    [rules] = blocks("acl")
    assert rules.split() in [block.split() for block in re.findall(r"^```\n(.*?)^```$", manual,
                                                                   re.MULTILINE | re.DOTALL)]


def listens(redis, holder, waiter, key):
    """Two brokers tell each other of a key, and ask Redis for a PONG when nobody says anything."""
    def count(client, name):
        return client.ok("stats")["counters"]["redis_channel_" + name]

    for client in holder, waiter:
        wait_until(lambda asked=client: count(asked, "connects"), "the channel is up")
    redis.client.config_resetstat()
    holder.ok("acquire", key=key, ttl_ms=1000)
    wanted = waiter.send("acquire", key=key, ttl_ms=1000, wait_ms=-1)
    wait_until(lambda: count(holder, "messages"), "the holder's broker hears of the waiter")
    holder.ok("release", key=key)
    assert waiter.reply(wanted)["ok"]
    assert count(waiter, "messages"), "it was told of its turn"
    waiter.ok("release", key=key)
    wait_until(lambda: "cmdstat_ping" in redis.client.info("commandstats"), "Redis was asked")
    for client in holder, waiter:
        assert count(client, "connects") == 1 and count(client, "connect_failures") == 0


def test_acl(lab, key):
    """A Redis user with just these rights is enough for everything; Redis logs what it denies."""
    [rules] = blocks("acl")
    redis = lab.redis(tcp=True)
    redis.client.execute_command("ACL", "SETUSER", "broker", "on", ">word", *rules.split())
    url = f"redis://broker:word@127.0.0.1:{redis.port}/0"
    daemon = lab.daemon(url, data_loss="quarantine", ttl_max="1s")
    second = lab.daemon(url, data_loss="quarantine", ttl_max="1s")
    holder, other = daemon.client(), daemon.client()
    holder.ok("acquire", key=key, ttl_ms=1000, wait_ms=-1)
    renewals = holder.ok("stats")["counters"]["renewals"]
    wait_until(lambda: holder.ok("stats")["counters"]["renewals"] > renewals, "it is renewed")
    other.fails("busy", "acquire", key=key)
    other.ok("query", key=key + "/other")
    redis.client.set(LOCK_PREFIX + key + "/foreign", "x")
    other.ok("break", key=key + "/foreign")
    redis.client.rpush(LOCK_PREFIX + key + "/list", "x")
    other.fails("conflict", "acquire", key=key + "/list")
    backend = other.ok("stats")["backend"]
    assert backend["role"] == "master" and backend["maxmemory_policy"] == "noeviction"
    assert holder.ok("release", key=key)["outcome"] == "released"
    listens(redis, holder, second.client(), key + "/shared")
    holder.ok("acquire", key=key, ttl_ms=1000)
    redis.client.delete(LOCK_PREFIX + key)
    holder.event("lost", key=key, reason="deleted")
    holder.ok("release", key=key)
    holder.ok("acquire", key=key, ttl_ms=1000)
    redis.client.flushall()
    wait_until(lambda: holder.ok("stats")["counters"]["reasserted"], "the key is set again")
    assert redis.client.execute_command("ACL", "LOG") == []
