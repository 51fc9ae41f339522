"""`lockbroker run` against a broker whose every answer the test decides."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from cli import Cli, ScriptedBroker, state_of
from lockbroker import margin_ms, now_ms, wait_until

TRAPPER = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


@pytest.fixture
def broker(lab):
    it = ScriptedBroker(lab.path("s"))
    yield it
    it.stop()


@pytest.fixture
def cli(broker):
    it = Cli(broker.path)
    yield it
    it.stop()


def refusal(error, **fields):
    return lambda _: {"error": error, "message": "a sentence", **fields}


# Exit codes.

@pytest.mark.parametrize("command, code", [
    (["true"], 0),
    (["false"], 1),
    (["sh", "-c", "exit 42"], 42),
    (["sh", "-c", "kill -TERM $$"], 128 + 15),
    (["sh", "-c", "kill -KILL $$"], 128 + 9),
    (["/nonexistent/program"], 127),
    (["no-such-program-anywhere"], 127),
    (["/etc/passwd"], 126),
    (["/"], 126),
])
def test_the_commands_status_is_passed_on(cli, broker, command, code):
    outcome = cli("run", "k", "--", *command)
    assert outcome.code == code, outcome
    assert not outcome.was_signalled
    assert len(broker.asked("release")) == 1


@pytest.mark.parametrize("answer, code", [
    (refusal("busy", holder={"kind": "local", "pid": 77, "note": "why"}), 75),
    (refusal("timeout", waited_ms=5), 75),
    (refusal("unavailable", reason="down"), 69),
    (refusal("draining"), 69),
    (refusal("quota", limit="x"), 69),
    (refusal("denied"), 77),
    (refusal("conflict"), 65),
    (refusal("bad_field", field="ttl_ms"), 64),
    (refusal("internal"), 70),
    (refusal("from_the_future"), 70),
    (lambda _: b"garbage\n", 70),
    (lambda _: b"[1,2]\n", 70),
])
def test_an_acquire_that_fails(cli, broker, answer, code):
    broker.answers["acquire"] = answer
    outcome = cli("run", "k", "--", "echo", "ran")
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert re.fullmatch(r"lockbroker: [^\n]+\n", outcome.err)


def test_the_message_names_the_holder(cli, broker):
    broker.answers["acquire"] = refusal("busy", holder={
        "kind": "local", "pid": 77, "uid": 5, "note": "a \x1b[31mred one", "held_ms": 65000})
    err = cli("run", "k", "--wait", "0", "--", "true").err
    assert "pid 77 of uid 5" in err and "for 1m 5s" in err and "\\x1b[31mred" in err


@pytest.mark.parametrize("fields, said", [
    ({"reason": "down"}, "Redis cannot be reached; try again later"),
    ({"reason": "refused"}, "Redis refuses (see the broker's log); try again later"),
    ({"reason": "quarantine", "ends_in_ms": 28500},
     "new locks wait for another 29s: Redis has just started or lost its data (or, with memory://, "
     "the broker crashed); try again then\n"),
    ({"reason": "down", "may_block_ms": 30000}, "the lock may be blocked for up to 30s; try"),
    ({"reason": "of_the_future"}, "a sentence; try again later"),
])
def test_what_is_unavailable_is_said(cli, broker, fields, said):
    broker.answers["acquire"] = refusal("unavailable", **fields)
    outcome = cli("run", "k", "--", "true")
    assert outcome.code == 69 and said in outcome.err, outcome


def test_an_advice_is_given_once(cli, broker):
    broker.answers["acquire"] = refusal("draining", message="it goes down; connect again later")
    assert cli("run", "k", "--", "true").err == "lockbroker: it goes down; connect again later\n"


@pytest.mark.parametrize("option, error, code", [
    ("--busy-code", "busy", 75), ("--busy-code", "timeout", 75),
    ("--unavailable-code", "unavailable", 69), ("--unavailable-code", "draining", 69)])
def test_codes_can_be_chosen(cli, broker, option, error, code):
    broker.answers["acquire"] = refusal(error)
    assert cli("run", "k", option, "3", "--", "true").code == 3
    assert cli("run", "k", "--lost-code=4", "--", "true").code == code


def test_no_broker(lab):
    path = lab.path("nobody")
    cli = Cli(path)
    outcome = cli("run", "k", "--", "true")
    assert outcome.code == 69
    assert outcome.err == (f"lockbroker: no broker at {path}: the socket does not exist; start "
                           "lockbrokerd, or name its socket with --socket\n")
    assert cli("run", "k", "--unavailable-code", "9", "--", "true").code == 9
    with open(path, "w", encoding="ascii"):
        outcome = cli("run", "k", "--", "true")
    assert outcome.code == 69 and f"{path} is not a socket; " in outcome.err
    assert " is not a socket; " in cli("ping", "--socket", os.path.dirname(path)).err
    for command in (["ping"], ["query", "k"], ["list"], ["stats"], ["break", "k", "--reason", "r"]):
        outcome = cli(*command)
        assert outcome.code == 69 and path in outcome.err, command
    cli.stop()


def test_a_socket_of_others(lab, broker):
    path = lab.path("s")
    os.chmod(path, 0o600)
    cli = Cli(path)
    nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    if nobody:
        outcome = cli("run", "k", "--", "true", **nobody)
        assert outcome.code == 77 and path in outcome.err
    assert cli("run", "k", "--socket", "p" * 108, "--", "true").code == 64
    cli.stop()


def test_a_broker_that_ends_while_we_wait(cli, broker):
    broker.answers["acquire"] = lambda _: None
    running = cli.start("run", "k", "--", "echo", "ran")
    wait_until(lambda: broker.asked("acquire"), "the acquire")
    broker.hang_up()
    outcome = running.wait()
    assert outcome.code == 69 and outcome.out == "" and broker.path in outcome.err


@pytest.mark.parametrize("argv, hint", [
    (["run"], "key"),
    (["run", "k"], "command"),
    (["run", "k", "--"], "command"),
    (["run", "k", "--ttl", "30", "--", "true"], "write 30ms, 30s"),
    (["run", "k", "--wait", "5", "--", "true"], "unit"),
    (["run", "k", "--wait=-1s", "--", "true"], "forever"),
    (["run", "k", "--ttl", "0", "--", "true"], "duration"),
    (["run", "k", "--ttl", "999ms", "--", "true"], "at least 1s"),
    (["run", "k", "--ttl", "forever", "--", "true"], "duration"),
    (["run", "k", "--wait", "1w", "--", "true"], "duration"),
    (["run", "k", "--busy-code", "256", "--", "true"], "255"),
    (["run", "k", "--busy-code", "x", "--", "true"], "255"),
    (["run", "k", "--nonsense", "--", "true"], "--nonsense"),
    (["run", "k", "--note", "n" * 257, "--", "true"], "256"),
    (["run", "k" * 513, "--", "true"], "the key has 513 bytes; 512 are the most"),
    (["run", "", "--", "true"], "512"),
    (["run", "a\nb", "--", "true"], "\\x0a"),
    (["run", "k" * 510 + "\n!", "--", "true"], "k\\x0a!'"),
    (["query"], "key"),
    (["query", "k", "j"], "'j'"),
    (["break", "k"], "--reason"),
    (["break", "k", "--reason", "r" * 257], "256"),
    (["list", "--prefix"], "--prefix"),
    (["ping", "--json=1"], "--json"),
    (["dance"], "dance"),
    ([], "command"),
])
def test_usage(cli, broker, argv, hint):
    outcome = cli(*argv)
    assert outcome.code == 64, outcome
    assert hint in outcome.err
    assert re.fullmatch(r"lockbroker: [^\n]+\n", outcome.err)
    assert broker.requests == []


@pytest.mark.parametrize("command", [[], ["run"], ["ping"], ["query"], ["list"], ["stats"],
                                     ["break"]])
def test_help(cli, command):
    outcome = cli(*command, "--help")
    assert outcome.code == 0 and "Usage: lockbroker" in outcome.out and outcome.err == ""


def test_version(cli):
    assert re.fullmatch(r"lockbroker \d+\.\d+\.\d+\n", cli("--version").out)


# What is asked, and what the command gets.

def test_options_reach_the_broker(cli, broker):
    assert cli("run", "--ttl", "2s", "k", "--wait", "1m", "--note=n", "true").code == 0
    acquire = broker.asked("acquire")[0]
    assert (acquire["ttl_ms"], acquire["wait_ms"], acquire["note"]) == (2000, 60000, "n")
    assert cli("run", "k", "true").code == 0
    acquire = broker.asked("acquire")[1]
    assert acquire["wait_ms"] == -1 and "ttl_ms" not in acquire
    assert cli("run", "k", "--wait", "0", "true").code == 0
    assert broker.asked("acquire")[2].get("wait_ms", 0) == 0


def test_the_environment_and_the_streams(cli):
    outcome = cli("run", "k", "--", "sh", "-c",
                  'echo "$LOCKBROKER_KEY $LOCKBROKER_FENCE $1"; cat; echo err >&2', "sh", "--json",
                  stdin=subprocess.PIPE)
    assert (outcome.code, outcome.out, outcome.err) == (0, "k 42 --json\n", "err\n")


SOCKETS = ("import os, sys\n"
           "links = [(int(fd), os.readlink('/proc/self/fd/' + fd)) "
           "for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd) "
           "or os.path.islink('/proc/self/fd/' + fd)]\n"
           "print([fd for fd, link in links if link.startswith('socket:')], "
           "[link for fd, link in links if 'signalfd' in link or 'timerfd' in link])")


def test_the_command_inherits_the_socket_alone(cli):
    sockets = cli("run", "k", "--", sys.executable, "-I", "-c", SOCKETS).out
    assert re.fullmatch(r"\[\d{3}\] \[\]\n", sockets), sockets
    assert cli("run", "k", "--close", "--", sys.executable, "-I", "-c", SOCKETS).out == "[] []\n"


def test_the_command_gets_our_signal_mask(cli):
    outcome = cli("run", "k", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status",
                  restore_signals=True)
    assert outcome.out.split()[1] == "0" * 16


# Signals.

@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH", "ALRM",
                                  "ABRT", "RTMIN"])
def test_signals_are_passed_on(cli, name):
    script = (f"trap 'echo got {name}; exit 7' {name}; echo ready; "
              "while :; do sleep 0.02; done")
    running = cli.start("run", "k", "--", "bash", "-c", script)
    assert running.line() == "ready"
    running.signal(getattr(signal, "SIG" + name))
    outcome = running.wait()
    assert (outcome.code, outcome.out) == (7, f"got {name}\n"), outcome


def test_signals_reach_the_whole_group_and_not_us(cli):
    running = cli.start("run", "k", "--", "sh", "-c", "sleep 60 & echo $!; wait")
    background = int(running.line())
    running.signal(signal.SIGTERM)
    assert running.wait().code == 128 + 15
    wait_until(lambda: state_of(background) is None, "the background process is gone")


def test_ignored_signals_stay_ignored(cli):
    script = ("import signal, sys\n"
              "signal.signal(signal.SIGHUP, lambda *_: print('hup', flush=True))\n"
              "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))\n"
              "print('ready', flush=True)\n"
              "while True: signal.pause()\n")
    running = cli.start("run", "k", "--", sys.executable, "-I", "-S", "-c", script,
                        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert running.line() == "ready"
    running.signal(signal.SIGHUP)
    running.signal(signal.SIGUSR1)
    outcome = running.wait()
    assert (outcome.code, outcome.out) == (3, "")


def test_an_ignored_sigchld_does_not_lose_the_status(cli):
    outcome = cli("run", "k", "--", "sh", "-c", "exit 5",
                  preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert outcome.code == 5


def test_a_signal_ends_the_wait_for_the_lock(cli, broker):
    broker.answers["acquire"] = lambda _: None
    running = cli.start("run", "k", "--", "echo", "ran")
    wait_until(lambda: broker.asked("acquire"), "the acquire")
    running.signal(signal.SIGTERM)
    outcome = running.wait()
    assert (outcome.code, outcome.out) == (128 + 15, "")


def test_a_stop_and_a_continue_are_passed_on(cli):
    # A group of its own: in an orphaned one the kernel would not let it stop.
    running = cli.start("run", "k", "--ttl", "1s", "--", "sleep", "60", preexec_fn=os.setpgrp)
    child = running.child()
    wait_until(lambda: state_of(child) == "S", "it runs")
    for _ in range(3):
        running.signal(signal.SIGTSTP)
        wait_until(lambda: state_of(child) == "T" and state_of(running.pid) == "T", "both stop")
        running.signal(signal.SIGCONT)
        wait_until(lambda: state_of(child) == "S" and state_of(running.pid) == "S", "both go on")
    running.signal(signal.SIGTERM)
    assert running.wait().code == 128 + 15


# The lock's end.

def test_lost_stops_the_command(cli, broker):
    running = cli.start("run", "k", "--", "sleep", "60")
    running.child()
    broker.tell("lost", reason="stolen")
    outcome = running.wait()
    assert outcome.code == 76 and "(stolen)" in outcome.err
    assert outcome.err.count("\n") == 1
    assert now_ms() < broker.deadline_ms
    assert len(broker.asked("release")) == 1


def test_a_loss_that_is_told_twice_is_said_once(cli, broker):
    broker.answers["release"] = lambda _: {"outcome": "was_lost", "reason": "stolen"}
    running = cli.start("run", "k", "--", "sleep", "60")
    running.child()
    broker.tell("lost", reason="stolen")
    assert running.wait().err.count("\n") == 1


def test_a_doubt_is_said_and_its_end(cli, broker):
    running = cli.start("run", "k", "--", "sh", "-c", "echo ready; sleep 60")
    assert running.line() == "ready"
    broker.tell("suspect", reason="no_answer", deadline_ms=now_ms() + 15000)
    said = running.popen.stderr.readline()
    assert re.fullmatch(r"lockbroker: the lease of 'k' is not confirmed \(Redis does not answer\); "
                        r"the command is stopped in (\d|1[0-2])s unless that changes\n", said), said
    broker.tell("ok", deadline_ms=now_ms() + 29000)
    assert running.popen.stderr.readline() == "lockbroker: the lease of 'k' is confirmed again\n"
    broker.tell("ok", deadline_ms=now_ms() + 29000)
    running.signal(signal.SIGTERM)
    outcome = running.wait()
    assert outcome.code == 128 + 15 and outcome.err == ""


def test_the_status_of_a_command_that_was_told_to_stop_is_not_taken(cli, broker):
    running = cli.start("run", "k", "--lost-code", "5", "--", "sh", "-c",
                        "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    assert running.line() == "ready"
    broker.tell("lost", reason="broken")
    assert running.wait().code == 5


@pytest.mark.parametrize("reason", ["stolen", "expired"])
def test_lost_kills_a_command_that_does_not_stop(cli, broker, reason):
    running = cli.start("run", "k", "--ttl", "3s", "--", "sh", "-c", TRAPPER)
    assert running.line() == "ready"
    child = running.child()
    deadline_ms = broker.deadline_ms
    broker.tell("lost", reason=reason, deadline_ms=deadline_ms)
    wait_until(lambda: state_of(child) is None, "the command is gone")
    assert now_ms() < deadline_ms
    assert running.wait().code == 76


def test_lost_kills_what_the_command_leaves(cli, broker):
    running = cli.start("run", "k", "--ttl", "3s", "--", "sh", "-c",
                        f"( {TRAPPER} ) & echo $!; exec sleep 60")
    pids = [running.line(), running.line()]
    background = int([line for line in pids if line != "ready"][0])
    broker.tell("lost", reason="stolen")
    assert running.wait().code == 76
    wait_until(lambda: state_of(background) is None, "the background process is gone")
    assert now_ms() < broker.deadline_ms


def test_a_loss_past_its_deadline_kills_at_once(cli, broker):
    running = cli.start("run", "k", "--", "sh", "-c", TRAPPER)
    assert running.line() == "ready"
    started = time.monotonic()
    broker.tell("lost", reason="expired", deadline_ms=now_ms() - 1)
    assert running.wait().code == 76
    assert time.monotonic() - started < 10


def test_lost_reaches_a_stopped_command(cli, broker):
    running = cli.start("run", "k", "--", "sh", "-c",
                        "trap 'echo got TERM; exit' TERM; echo ready; while :; do sleep 0.02; done")
    assert running.line() == "ready"
    child = running.child()
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: state_of(child) == "T", "it is stopped")
    broker.tell("lost", reason="stolen")
    outcome = running.wait()
    assert (outcome.code, outcome.out) == (76, "got TERM\n")


def test_a_loss_found_out_by_the_release(cli, broker):
    broker.answers["release"] = lambda _: {"outcome": "was_lost", "reason": "deleted"}
    outcome = cli("run", "k", "--", "true")
    assert outcome.code == 76
    assert outcome.err == ("lockbroker: the lock 'k' was lost while the command ran: its key was "
                           "deleted from Redis (deleted)\n")
    assert cli("run", "k", "--lost-code", "6", "--", "sh", "-c", "exit 76").code == 6
    broker.answers["release"] = refusal("not_held")
    assert cli("run", "k", "--", "true").code == 76


def test_a_release_that_is_not_confirmed_is_no_loss(cli, broker):
    broker.answers["release"] = lambda _: {"outcome": "unconfirmed", "frees_within_ms": 1234}
    outcome = cli("run", "k", "--", "sh", "-c", "exit 3")
    assert outcome.code == 3 and "1234" in outcome.err


def test_the_end_is_not_held_up_by_a_silent_broker(cli, broker):
    broker.answers["release"] = lambda _: None
    outcome = cli("run", "k", "--", "sh", "-c", "exit 3")
    assert outcome.code == 3 and "could not be given back" in outcome.err


def assert_stopped_in_time(broker, running, ttl_ms):
    """The command got TERM no later than the margin, and ended by the deadline."""
    child = running.child()
    wait_until(lambda: state_of(child) is None, "the command is gone")
    ended_ms = now_ms()
    assert ended_ms < broker.deadline_ms
    assert ended_ms > broker.deadline_ms - 2 * margin_ms(ttl_ms), "stopped too early"
    return running.wait()


def test_a_broker_that_falls_silent(cli, broker):
    running = cli.start("run", "k", "--ttl", "3s", "--", "sleep", "60")
    running.child()
    broker.answers["check"] = lambda _: None
    outcome = assert_stopped_in_time(broker, running, 3000)
    assert outcome.code == 76 and "has not confirmed it" in outcome.err


def test_a_broker_that_cannot_renew_any_more(cli, broker):
    broker.is_renewing = False
    running = cli.start("run", "k", "--ttl", "3s", "--", "sh", "-c", TRAPPER)
    assert running.line() == "ready"
    assert assert_stopped_in_time(broker, running, 3000).code == 76
    assert len(broker.asked("check")) >= 2


def test_a_broker_that_is_gone(cli, broker):
    running = cli.start("run", "k", "--ttl", "3s", "--", "sleep", "60")
    running.child()
    broker.hang_up()
    outcome = assert_stopped_in_time(broker, running, 3000)
    assert outcome.code == 76 and "the broker is gone" in outcome.err


@pytest.mark.parametrize("last", [b"garbage\n", b'{"half', b'{"event":"x"}\n{"id":77,"ok":true}\n'])
def test_a_broker_that_ends_oddly(cli, broker, last):
    running = cli.start("run", "k", "--ttl", "1s", "--", "sleep", "60")
    running.child()
    broker.connections[-1].sendall(last)
    broker.hang_up()
    assert running.wait().code == 76


def test_a_command_that_ends_before_the_deadline_was_protected(cli, broker):
    running = cli.start("run", "k", "--", "sh", "-c", "echo ready; read x; exit 3",
                        stdin=subprocess.PIPE)
    assert running.line() == "ready"
    broker.hang_up()
    wait_until(lambda: "broker is gone" in running.popen.stderr.readline(), "it is noticed")
    running.popen.stdin.write("x\n")
    assert running.wait().code == 3


def test_the_lock_is_kept_for_longer_than_its_ttl(cli, broker):
    started = time.monotonic()
    assert cli("run", "k", "--ttl", "1s", "--", "sleep", "2.5").code == 0
    assert time.monotonic() - started >= 2.5
    assert len(broker.asked("check")) >= 5


def test_a_wrapper_that_was_stopped_asks_first(cli, broker):
    running = cli.start("run", "k", "--ttl", "1s", "--", "sh", "-c", "echo ready; sleep 60")
    assert running.line() == "ready"
    os.kill(running.pid, signal.SIGSTOP)
    deadline_ms = broker.deadline_ms
    wait_until(lambda: now_ms() > deadline_ms + 200, "the told deadline has passed")
    os.kill(running.pid, signal.SIGCONT)
    asked = len(broker.asked("check"))
    wait_until(lambda: len(broker.asked("check")) >= asked + 3, "it goes on")
    running.signal(signal.SIGTERM)
    assert running.wait().code == 128 + 15


def test_a_wrapper_that_was_stopped_and_lost_the_lock(cli, broker):
    running = cli.start("run", "k", "--ttl", "1s", "--", "sh", "-c", "echo ready; sleep 60")
    assert running.line() == "ready"
    os.kill(running.pid, signal.SIGSTOP)
    broker.answers["check"] = lambda _: {"held": False}
    deadline_ms = broker.deadline_ms
    wait_until(lambda: now_ms() > deadline_ms, "the told deadline has passed")
    os.kill(running.pid, signal.SIGCONT)
    assert running.wait().code == 76
