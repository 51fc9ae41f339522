"""`lockbroker run` on a terminal: who has it, and what its keys do."""

import os
import pty
import select
import signal
import time

import pytest

from cli import ScriptedBroker, cli_path
from lockbroker import PATIENCE, now_ms, wait_until


@pytest.fixture
def broker(lab):
    it = ScriptedBroker(lab.path("s"))
    yield it
    it.stop()


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
