"""The command line tool with the real daemon on a real Redis."""

import json
import os
import re
import signal
import subprocess

import pytest

from cli import Cli, cli_path, state_of
from lockbroker import connect, now_ms, wait_until

TRAPPER = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
TTL = 3000


@pytest.fixture
def cli(daemon):
    it = Cli(daemon.socket_path)
    yield it
    it.stop()


def stop_and_look(redis, key, running, child):
    """The command ended, the key had not moved before, and the tool said 76."""
    wait_until(lambda: state_of(child) is None, "the command is gone")
    kept = redis.value(key)
    outcome = running.wait()
    assert outcome.code == 76, outcome
    return kept, outcome


# The lock's life.

def test_the_lock_is_held_while_the_command_runs_and_free_at_once_after(cli, redis, key):
    running = cli.start("run", key, "--", "sh", "-c", "echo ready; sleep 60")
    assert running.line() == "ready"
    assert redis.value(key).startswith("lb1:")
    running.signal(signal.SIGTERM)
    assert running.wait().code == 128 + 15
    assert redis.value(key) is None


def test_the_lock_is_free_although_the_command_left_something_behind(cli, redis, key):
    outcome = cli("run", key, "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
    assert outcome.code == 0
    assert redis.value(key) is None
    os.kill(int(outcome.out), signal.SIGKILL)


def test_the_fence_rises(cli, key):
    fences = [int(cli("run", key, "--", "sh", "-c", "echo $LOCKBROKER_FENCE").out)
              for _ in range(3)]
    assert sorted(set(fences)) == fences


def test_busy_timeout_and_a_turn(cli, client, key):
    client.ok("acquire", key=key, note="mine alone")
    outcome = cli("run", key, "--wait", "0", "--", "echo", "ran")
    assert outcome.code == 75 and outcome.out == "" and "mine alone" in outcome.err
    outcome = cli("run", key, "--wait", "200ms", "--", "echo", "ran")
    assert outcome.code == 75 and outcome.out == "" and "mine alone" in outcome.err
    waiter = cli.start("run", key, "--", "echo", "ran")
    wait_until(lambda: client.ok("query", key=key)["waiters"] == 1, "it waits")
    client.ok("release", key=key)
    outcome = waiter.wait()
    assert (outcome.code, outcome.out) == (0, "ran\n")


def test_a_ttl_over_the_brokers_maximum(cli, key):
    outcome = cli("run", key, "--ttl", "1h", "--", "echo", "ran")
    assert outcome.code == 64 and outcome.out == ""
    assert outcome.err == "lockbroker: --ttl 1h is over the broker's maximum of 30s\n"


def test_a_key_that_is_no_lock(cli, redis, key):
    redis.client.lpush("lockbroker:lock:" + key, "x")
    assert cli("run", key, "--wait", "0", "--", "echo", "ran").code == 65


def test_redis_down(cli, daemon, redis, key):
    redis.kill()
    daemon.wait_backend("down")
    outcome = cli("run", key, "--wait", "0", "--", "echo", "ran")
    assert outcome.code == 69 and outcome.out == ""
    assert outcome.err.startswith("lockbroker: Redis cannot be reached; ")
    assert cli("ping").code == 69
    outcome = cli("query", key)
    assert outcome.code == 69 and outcome.err.startswith("lockbroker: Redis cannot be reached; ")
    assert "granted" not in outcome.err


def only_connection(daemon):
    """A connection that is served by a broker that serves one; None when another has it still."""
    sock = connect(daemon.socket_path)
    try:
        sock.sendall(b'{"id":1,"op":"ping"}\n')
        if b'"ok":true' in sock.recv(4096):
            return sock
    except (BrokenPipeError, ConnectionResetError):
        pass
    sock.close()
    return None


def test_a_broker_that_is_full(lab, key):
    daemon = lab.daemon("memory://", up=False, connections_max=1)
    cli = Cli(daemon.socket_path)
    with wait_until(lambda: only_connection(daemon), "the connection of the start is gone"):
        for argv in (["run", key, "--", "true"], ["ping"]):
            outcome = cli(*argv)
            assert outcome.code == 69, outcome
            assert "as many connections as it may; try again later\n" in outcome.err
        cli.stop()


def test_a_stopped_broker_is_no_broker(lab, key):
    daemon = lab.daemon("memory://")
    daemon.sigstop()
    cli = Cli(daemon.socket_path)
    outcome = cli("run", key, "--", "echo", "ran")
    assert outcome.code == 69 and "is there but does not answer" in outcome.err
    assert "start lockbrokerd" not in outcome.err
    cli.stop()


# Loss.

def start_holder(cli, key, script):
    running = cli.start("run", key, "--ttl", f"{TTL}ms", "--", "sh", "-c", script)
    assert running.line() == "ready"
    return running, running.child()


@pytest.mark.parametrize("script", ["echo ready; sleep 60", TRAPPER])
def test_a_deleted_key_stops_the_command(cli, redis, key, script):
    running, child = start_holder(cli, key, script)
    redis.client.delete("lockbroker:lock:" + key)
    _, outcome = stop_and_look(redis, key, running, child)
    assert outcome.err == (f"lockbroker: the lock '{key}' is lost: its key was deleted from Redis "
                           "(deleted); the command is stopped\n")


@pytest.mark.parametrize("script", ["echo ready; sleep 60", TRAPPER])
def test_a_stopped_broker_stops_the_command_before_the_key_moves(cli, daemon, redis, key, script):
    running, child = start_holder(cli, key, script)
    daemon.sigstop()
    kept, _ = stop_and_look(redis, key, running, child)
    assert kept is not None
    daemon.sigcont()


@pytest.mark.parametrize("script", ["echo ready; sleep 60", TRAPPER])
def test_a_killed_broker_stops_the_command_before_the_key_moves(cli, daemon, redis, key, script):
    running, child = start_holder(cli, key, script)
    daemon.kill()
    kept, _ = stop_and_look(redis, key, running, child)
    assert kept is not None


def test_a_stopped_redis_stops_the_command_before_the_key_moves(cli, redis, key):
    running, child = start_holder(cli, key, TRAPPER)
    before_ms = redis.pttl(key) + now_ms()
    redis.sigstop()
    wait_until(lambda: state_of(child) is None, "the command is gone")
    ended_ms = now_ms()
    redis.sigcont()
    assert running.wait().code == 76
    assert ended_ms < before_ms + TTL


def test_a_stopped_redis_is_told_as_it_comes(cli, redis, key):
    running = cli.start("run", key, "--ttl", "6s", "--", "sh", "-c", "echo ready; sleep 60")
    assert running.line() == "ready"
    redis.sigstop()
    outcome = running.wait()
    redis.sigcont()
    lines = outcome.err.splitlines()
    assert outcome.code == 76 and len(lines) == 2, outcome
    assert lines[0].startswith(f"lockbroker: the lease of '{key}' is not confirmed (Redis ")
    assert "(expired)" in lines[1], "the broker's word comes before our own"


def test_a_broker_that_goes_down_stops_the_command(cli, daemon, key):
    running, _ = start_holder(cli, key, "echo ready; sleep 60")
    daemon.sigterm()
    outcome = running.wait()
    assert outcome.code == 76 and "shutdown" in outcome.err
    assert daemon.wait_exit() == 0


# Death of the wrapper.

def test_a_killed_wrapper_sends_the_command_a_signal(cli, redis, key):
    running, child = start_holder(
        cli, key, "trap 'echo got TERM; exit' TERM; echo ready; while :; do sleep 0.02; done")
    running.kill()
    assert running.line() == "got TERM"
    wait_until(lambda: state_of(child) is None, "the command is gone")
    wait_until(lambda: redis.value(key) is None, "the lock is free")


def test_the_lock_outlives_a_killed_wrapper_up_to_the_commands_end(cli, client, redis, key):
    running, child = start_holder(cli, key, TRAPPER)
    running.kill()
    until_ms = now_ms() + 2 * TTL
    while now_ms() < until_ms:
        assert state_of(child) is not None
        assert redis.value(key) is not None
        client.fails("busy", "acquire", key=key)
    os.killpg(child, signal.SIGKILL)
    wait_until(lambda: redis.value(key) is None, "the lock is free")


def test_with_close_the_lock_ends_with_the_wrapper(cli, redis, key):
    running = cli.start("run", key, "--close", "--", "sh", "-c", TRAPPER)
    assert running.line() == "ready"
    child = running.child()
    running.kill()
    wait_until(lambda: redis.value(key) is None, "the lock is free")
    assert state_of(child) is not None
    os.killpg(child, signal.SIGKILL)


# The other commands.

def test_ping(cli):
    outcome = cli("ping")
    assert (outcome.code, outcome.out) == (0, "broker up, backend up\n")
    reply = json.loads(cli("ping", "--json").out)
    assert reply["ok"] is True and reply["backend"] == "up"


def test_query(cli, client, redis, key):
    outcome = cli("query", key)
    assert outcome.code == 1 and "free" in outcome.out
    fence = client.ok("acquire", key=key, note="a note")["fence"]
    outcome = cli("query", key)
    assert outcome.code == 0
    rows = dict(line.split("  ", 1) for line in outcome.out.splitlines())
    assert {k: v.strip() for k, v in rows.items()}.items() >= {
        "key": key, "state": "held", "pid": str(os.getpid()), "uid": str(os.getuid()),
        "note": "a note", "fence": str(fence)}.items()
    outcome = cli("query", "--json", key)
    assert outcome.code == 0 and json.loads(outcome.out)["holder"]["fence"] == fence
    redis.client.set("lockbroker:lock:other", "a stranger's")
    outcome = cli("query", "other")
    assert outcome.code == 0 and "never" in outcome.out


def test_a_lock_of_another_broker_on_this_host(cli, lab, redis, key):
    lab.daemon(redis).client().ok("acquire", key=key)
    outcome = cli("query", key)
    assert outcome.code == 0
    assert re.search(r"^held by +another lockbroker$", outcome.out, re.MULTILINE)
    assert re.search(r"^host +\S", outcome.out, re.MULTILINE)
    outcome = cli("run", key, "--wait", "0", "--", "true")
    assert outcome.code == 75 and "held by another lockbroker on host " in outcome.err


def test_list(cli, client):
    for i in range(3):
        client.ok("acquire", key=f"l/{i}", note="red \u202e alert" if i == 1 else "")
    client.ok("acquire", key="other")
    outcome = cli("list", "--prefix", "l/")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert [line.split()[0] for line in lines] == ["KEY", "l/0", "l/1", "l/2"]
    assert len({line.index(word) for line, word in zip(lines, ["STATE", "held", "held", "held"])
                if word in line}) == 1
    assert "\\xe2\\x80\\xae" in lines[2]
    assert [row["key"] for row in json.loads(cli("list", "--json").out)["locks"]] == [
        "l/0", "l/1", "l/2", "other"]


def test_list_pages_through_all(cli, client):
    ids = [client.send("acquire", key=f"page/{i:04}") for i in range(1005)]
    for request_id in ids:
        assert client.reply(request_id)["ok"]
    assert len(cli("list").out.splitlines()) == 1 + 1005
    pages = [json.loads(line) for line in cli("list", "--json").out.splitlines()]
    assert len(pages) >= 2
    assert sum(len(page["locks"]) for page in pages) == 1005


def test_stats(cli, client, key):
    client.ok("acquire", key=key)
    outcome = cli("stats")
    assert outcome.code == 0 and "redis" in outcome.out and "noeviction" in outcome.out
    reply = json.loads(cli("stats", "--json").out)
    for name in [*reply["counters"], *reply["gauges"]]:
        assert name in outcome.out


def test_break(cli, client, redis, key):
    outcome = cli("break", key, "--reason", "nobody there")
    assert outcome.code == 1 and "free" in outcome.out
    client.ok("acquire", key=key, ttl_ms=TTL, note='a "note"')
    outcome = cli("break", key, "--reason", "a test")
    assert outcome.code == 0 and '"a \\"note\\"", which held it for ' in outcome.out
    client.event("lost", key=key, reason="broken")
    wait_until(lambda: redis.value(key) is None, "the lock is free")
    client.ok("acquire", key=key + "2")
    assert json.loads(cli("break", key + "2", "--reason", "r", "--json").out)["broken"] is True


def test_break_stops_a_command(cli, key):
    running, _ = start_holder(cli, key, "echo ready; sleep 60")
    assert cli("break", key, "--reason", "a test").code == 0
    outcome = running.wait()
    assert outcome.code == 76 and "broken" in outcome.err


def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([cli_path(), "--version"], stdout=full, stderr=subprocess.PIPE,
                              check=False)
    assert done.returncode == 70 and b"standard output" in done.stderr
