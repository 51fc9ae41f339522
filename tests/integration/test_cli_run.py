"""`lockbroker run` against a broker whose every answer the test decides."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from cli import Cli, ScriptedBroker, cli_path, state_of
from lockbroker import PATIENCE, margin_ms, now_ms, wait_until

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
    assert outcome.code == 69 and path in outcome.err
    assert cli("run", "k", "--unavailable-code", "9", "--", "true").code == 9
    with open(path, "w", encoding="ascii"):
        assert cli("run", "k", "--", "true").code == 69
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
    (["run", "k" * 513, "--", "true"], "512"),
    (["run", "", "--", "true"], "512"),
    (["run", "a\nb", "--", "true"], "\\x0a"),
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
    assert outcome.code == 76 and "stolen" in outcome.err
    assert now_ms() < broker.deadline_ms
    assert len(broker.asked("release")) == 1


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
    assert outcome.code == 76 and "deleted" in outcome.err
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
    assert outcome.code == 76 and "does not answer" in outcome.err


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


# The terminal.

class Terminal:
    """An interactive bash on a terminal of its own."""

    def __init__(self, socket_path):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(LOCKBROKER_SOCKET=socket_path, PS1="$ ", HISTFILE="", TERM="dumb",
                              LB=cli_path())
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.seen = ""
        self.type("bind 'set enable-bracketed-paste off' 2>/dev/null; stty -echo; echo sta''rted\n")
        self.expect("started")

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, text):
        """Reads until the text has come; returns what came before it."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen:
            ready = select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]
            assert ready, f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
            except OSError as error:
                raise AssertionError(f"no {text!r} in {self.seen!r}") from error
        before, _, self.seen = self.seen.partition(text)
        return before

    def stop(self):
        os.kill(self.pid, signal.SIGHUP)
        os.close(self.fd)
        end = time.monotonic() + 5
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)


@pytest.fixture
def terminal(broker):
    it = Terminal(broker.path)
    yield it
    it.stop()


LOOP = "while :; do sleep 0.02; done"


def test_ctrl_c_reaches_the_command(terminal):
    terminal.type(f"$LB run k -- sh -c 'trap \"echo got''it; exit 9\" INT; echo rea''dy; {LOOP}'; "
                  "echo code=$?\n")
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("gotit")
    terminal.expect("code=9")


def test_the_command_reads_from_the_terminal_and_gives_it_back(terminal):
    terminal.type("$LB run k -- sh -c 'echo rea''dy; read x; echo \"<$x>\"'; echo code=$?\n")
    terminal.expect("ready")
    terminal.type("hello\n")
    terminal.expect("<hello>")
    terminal.expect("code=0")
    terminal.type("read y; echo \"[$y]\"\n")
    time.sleep(0.1)
    terminal.type("again\n")
    terminal.expect("[again]")


def test_ctrl_z_stops_both_and_fg_goes_on(terminal, broker):
    terminal.type("$LB run k --ttl 1s -- sh -c 'echo rea''dy; read x; echo \"<$x>\"'; "
                  "echo code=$?\n")
    terminal.expect("ready")
    terminal.type("\x1a")
    terminal.expect("Stopped")
    terminal.expect("code=148")
    deadline_ms = broker.deadline_ms
    wait_until(lambda: now_ms() > deadline_ms, "the told deadline has passed")
    terminal.type("fg; echo end=$?\n")
    terminal.expect("run k")
    terminal.type("hello\n")
    terminal.expect("<hello>")
    terminal.expect("end=0")


def test_a_lock_that_was_lost_while_the_command_was_stopped(terminal, broker):
    terminal.type("$LB run k --ttl 1s -- sh -c 'kill -TSTP $$; echo \"<\"ran'; echo code=$?\n")
    terminal.expect("code=148")
    broker.tell("lost", reason="stolen")
    terminal.type("fg; echo end=$?\n")
    assert "<ran" not in terminal.expect("end=76")


def test_in_a_pipeline_the_terminal_comes_when_it_is_read(terminal):
    terminal.type("$LB run k -- sh -c 'echo rea''dy; read x; echo \"<$x>\"' | cat; "
                  "echo code=${PIPESTATUS[0]}\n")
    terminal.expect("ready")
    terminal.type("hello\n")
    terminal.expect("<hello>")
    terminal.expect("code=0")


def test_in_a_script_ctrl_c_ends_the_script_too(terminal):
    terminal.type(f"sh -c '$LB run k -- sh -c \"echo ready; {LOOP}\"; echo still'\n")
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.type("echo code=$?\n")
    assert "still" not in terminal.expect("code=130")


def test_a_script_gets_the_terminal_back(terminal):
    terminal.type("sh -c '$LB run k -- sh -c \"echo ready; read x\"; echo next; read y; "
                  "echo \"[$y]\"'\n")
    terminal.expect("ready")
    terminal.type("one\n")
    terminal.expect("next")
    terminal.type("two\n")
    terminal.expect("[two]")


def test_in_the_background(terminal):
    terminal.type("$LB run k -- sh -c 'read x; echo \"<$x>\"' &\n")
    terminal.type("sleep 0.5; jobs\n")
    terminal.expect("Stopped")
    terminal.type("fg; echo end=$?\n")
    terminal.expect("run k")
    terminal.type("hello\n")
    terminal.expect("<hello>")
    terminal.expect("end=0")
