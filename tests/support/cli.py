"""The command line tool under test, and a broker whose every answer a test decides."""

import json
import os
import signal
import socket
import subprocess
import threading

from lockbroker import DEFECT, PATIENCE, lease_ms, now_ms, wait_until


def cli_path():
    assert "LOCKBROKER_BIN" in os.environ, "set LOCKBROKER_BIN to the directory of the programs"
    return os.path.join(os.environ["LOCKBROKER_BIN"], "lockbroker")


class Outcome:
    """How a run of the tool ended: `code` as a shell has it."""

    def __init__(self, code, out, err):
        self.code = code if code >= 0 else 128 - code
        self.was_signalled = code < 0
        self.out = out
        self.err = err
        assert not DEFECT.search(err), err

    def __repr__(self):
        return f"Outcome(code={self.code}, out={self.out!r}, err={self.err!r})"


class Running:
    """A run of the tool that has not ended yet."""

    def __init__(self, argv, socket_path, **options):
        env = {**os.environ, **options.pop("env", {}), "LOCKBROKER_SOCKET": socket_path}
        self.popen = subprocess.Popen([cli_path(), *argv], env=env, text=True,
                                      stdin=options.pop("stdin", subprocess.DEVNULL),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    @property
    def pid(self):
        return self.popen.pid

    def child(self):
        """The pid of the command, once there is one."""
        return wait_until(lambda: children_of(self.pid), "the command runs")[0]

    def line(self):
        """The next line that the command writes."""
        return self.popen.stdout.readline().strip()

    def signal(self, number):
        self.popen.send_signal(number)

    def kill(self):
        """kill -9."""
        self.popen.kill()
        self.popen.wait(PATIENCE)

    def wait(self, timeout=PATIENCE):
        out, err = self.popen.communicate(timeout=timeout)
        return Outcome(self.popen.returncode, out, err)

    def stop(self):
        """Ends what a failed test left, the command's group too."""
        for child in children_of(self.pid) if self.popen.poll() is None else []:
            try:
                os.killpg(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(PATIENCE)
        self.popen.stdout.close()
        self.popen.stderr.close()


class Cli:
    """Runs the tool against one socket; what a test starts is ended with it."""

    def __init__(self, socket_path):
        self.socket_path = socket_path
        self.running = []

    def start(self, *argv, **options):
        running = Running(argv, self.socket_path, **options)
        self.running.append(running)
        return running

    def __call__(self, *argv, **options):
        return self.start(*argv, **options).wait()

    def stop(self):
        for running in self.running:
            running.stop()


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            return [int(child) for child in children.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def state_of(pid):
    """The state letter of a process; None when it is gone, "Z" counting as gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            letter = stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if letter in "ZX" else letter


class ScriptedBroker:
    """Grants every lock, confirms every check and release, until a test says otherwise.

    `answers` maps an operation to a function of the request that returns the reply's fields, raw
    bytes to write, or None to write nothing.
    """

    def __init__(self, path):
        self.path = path
        self.answers = {}
        self.requests = []
        self.connections = []
        self.deadline_ms = None  # the last one told
        self.is_renewing = True
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection.makefile("rb") as lines:
            try:
                for line in lines:
                    self._answer(connection, json.loads(line))
            except OSError:
                pass

    def _answer(self, connection, request):
        self.requests.append(request)
        answer = self.answers.get(request["op"], getattr(self, "_" + request["op"], None))
        fields = answer(request) if answer else {}
        if isinstance(fields, bytes):
            connection.sendall(fields)
        elif fields is not None:
            reply = {"id": request["id"], "ok": "error" not in fields, **fields}
            connection.sendall(json.dumps(reply).encode() + b"\n")

    def _lease(self, ttl_ms):
        if self.is_renewing or self.deadline_ms is None:
            self.deadline_ms = now_ms() + lease_ms(ttl_ms)
        return {"ttl_ms": ttl_ms, "valid_ms": self.deadline_ms - now_ms(),
                "deadline_ms": self.deadline_ms}

    def _acquire(self, request):
        self.ttl_ms = request.get("ttl_ms", 30000)
        return {"key": request["key"], "fence": 42, "waited_ms": 0, **self._lease(self.ttl_ms)}

    def _check(self, _):
        return {"held": True, "fence": 42, "state": "ok", **self._lease(self.ttl_ms)}

    def _release(self, _):
        return {"outcome": "released"}

    def tell(self, event, **fields):
        """Sends an event on the newest connection."""
        line = {"event": event, "key": "k", "fence": 42, "deadline_ms": self.deadline_ms, **fields}
        self.connections[-1].sendall(json.dumps(line).encode() + b"\n")

    def hang_up(self):
        """As if the process had died: every connection is closed, and nothing listens."""
        self.listener.close()
        for connection in self.connections:
            connection.shutdown(socket.SHUT_RDWR)

    def asked(self, op):
        return [request for request in self.requests if request["op"] == op]

    def stop(self):
        for sock in [self.listener, *self.connections]:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
