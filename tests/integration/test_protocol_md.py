"""Every example of proto/PROTOCOL.md, run against a real broker as that document says."""

import json
import os
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "proto" / "PROTOCOL.md"
PATIENCE = 30  # seconds for anything that should happen at once

STEP = re.compile(r"^(?P<connection>[0-9]?)(?P<kind>> |< |<\? |! close$)(?P<rest>.*)$")

# The members whose type alone is compared; the document has the same list.
VOLATILE = {"message", "server", "instance", "host", "pid", "uid", "valid_ms", "deadline_ms",
            "waited_ms", "now_ms", "held_ms", "ttl_left_ms", "counters", "gauges", "histograms"}


def read_blocks():
    """The examples as (line number, lines)."""
    blocks = []
    inside = None
    for number, line in enumerate(DOCUMENT.read_text(encoding="utf-8").splitlines(), 1):
        if inside is None and line == "```json-exchange":
            inside = (number + 1, [])
        elif inside is not None and line == "```":
            blocks.append(inside)
            inside = None
        elif inside is not None:
            inside[1].append(line)
    assert inside is None, "a block has no end"
    return blocks


BLOCKS = read_blocks()


class Mismatch(Exception):
    pass


class Fences:
    """Which real fence each fence of a block stands for."""

    def __init__(self):
        self.real = {}

    def match(self, written, real):
        if type(real) is not int:
            raise Mismatch(f"fence is {real!r}")
        if self.real.get(written, real) != real:
            raise Mismatch(f"fence {written} was {self.real[written]}, now it is {real}")
        if real in (r for w, r in self.real.items() if w != written):
            raise Mismatch(f"fence {real} was granted twice")
        self.real[written] = real

    def replace(self, line):
        return re.sub(r'"fence":([0-9]+)',
                      lambda m: f'"fence":{self.real.get(int(m[1]), m[1])}', line)


def match(expected, real, fences, name=""):
    """Compares as the document says; raises Mismatch."""
    if name == "fence":
        fences.match(expected, real)
    elif type(expected) is not type(real):
        raise Mismatch(f"{name}: {real!r} is of another type than {expected!r}")
    elif name in VOLATILE:
        pass
    elif isinstance(expected, dict):
        if set(expected) != set(real):
            raise Mismatch(f"{name}: members differ: {sorted(set(expected) ^ set(real))}")
        for member in expected:
            match(expected[member], real[member], fences, member)
    elif isinstance(expected, list):
        if len(expected) != len(real):
            raise Mismatch(f"{name}: {len(real)} elements in place of {len(expected)}")
        for one, other in zip(expected, real):
            match(one, other, fences, name)
    elif expected != real:
        raise Mismatch(f"{name}: {real!r} in place of {expected!r}")


class Connection:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(path)
        self.lines = self.sock.makefile("rb")

    def send(self, line):
        self.sock.sendall(line.encode() + b"\n")

    def receive(self):
        line = self.lines.readline()
        assert line.endswith(b"\n"), f"the connection ended: {line!r}"
        return json.loads(line)

    def close(self):
        self.lines.close()
        self.sock.close()


class Conversation:
    """One block."""

    def __init__(self, path):
        self.path = path
        self.connections = {}
        self.fences = Fences()

    def connection(self, name):
        if name not in self.connections:
            self.connections[name] = Connection(self.path)
        return self.connections[name]

    def play(self, number, lines):
        while lines:
            step = STEP.match(lines[0])
            assert step, f"line {number} is no step: {lines[0]}"
            count = 1
            if step["kind"] == "<? ":
                prefix = step["connection"] + "<? "
                while count < len(lines) and lines[count].startswith(prefix):
                    count += 1
            self.step(number, step, [STEP.match(line)["rest"] for line in lines[:count]])
            number += count
            lines = lines[count:]

    def step(self, number, step, rests):
        connection = self.connection(step["connection"] or "1")
        if step["kind"] == "> ":
            connection.send(self.fences.replace(rests[0]))
        elif step["kind"] == "! close":
            connection.close()
            del self.connections[step["connection"] or "1"]
        else:
            self.expect(number, connection, [json.loads(rest) for rest in rests])

    def expect(self, number, connection, expected):
        """The next lines are these, in any order."""
        while expected:
            real = connection.receive()
            reasons = []
            for candidate in expected:
                try:
                    match(candidate, real, self.fences)
                except Mismatch as mismatch:
                    reasons.append(str(mismatch))
                    continue
                expected.remove(candidate)
                break
            else:
                pytest.fail(f"PROTOCOL.md:{number}: got {json.dumps(real)}: {'; '.join(reasons)}")

    def end(self):
        for connection in self.connections.values():
            connection.close()


@pytest.fixture(scope="module")
def broker():
    """The path of the socket of a broker on memory://."""
    with tempfile.TemporaryDirectory(prefix="lb-protocol-") as folder:
        path = os.path.join(folder, "s")
        with open(os.path.join(folder, "log"), "wb") as log:
            process = subprocess.Popen([os.environ["LOCKBROKERD"], "--socket", path, "--backend",
                                        "memory://"], stderr=log)
        try:
            end = time.monotonic() + PATIENCE
            while True:
                assert process.poll() is None, Path(folder, "log").read_text(encoding="utf-8")
                try:
                    Connection(path).close()
                    break
                except OSError:
                    assert time.monotonic() < end, "the broker does not listen"
                    time.sleep(0.01)
            yield path
        finally:
            process.terminate()
            code = process.wait(timeout=PATIENCE)
            print(Path(folder, "log").read_text(encoding="utf-8"))
        assert code == 0


@pytest.mark.parametrize("number,lines", BLOCKS, ids=[f"line-{block[0]}" for block in BLOCKS])
def test_example(broker, number, lines):
    conversation = Conversation(broker)
    try:
        conversation.play(number, lines)
    finally:
        conversation.end()


def names_of(table, place):
    """The names in a .def table beside the document."""
    text = (DOCUMENT.parent / table).read_text(encoding="utf-8")
    names = re.findall(place, text, re.MULTILINE)
    assert names
    return names


def test_every_operation_has_a_section_and_an_example():
    text = DOCUMENT.read_text(encoding="utf-8")
    examples = "\n".join(line for _, lines in BLOCKS for line in lines)
    for name in names_of("ops.def", r'^X\([A-Z_]+, "([a-z_]+)"'):
        assert f"\n### {name}\n" in text, name
        assert f'"op":"{name}"' in examples, name


def test_every_error_has_a_row():
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in names_of("errors.def", r'^X\([A-Z_]+, "([a-z_]+)"'):
        assert f"\n| `{name}` |" in text, name


def test_the_document_lists_the_volatile_members():
    text = DOCUMENT.read_text(encoding="utf-8").split("the type alone is compared", 1)[1]
    listed = set(re.findall(r"`([a-z_]+)`", text.split("\n- ", 1)[0]))
    assert listed == VOLATILE


def test_a_wrong_answer_is_seen():
    fences = Fences()
    match({"fence": 1, "a": [1], "host": "x"}, {"fence": 7, "a": [1], "host": "y"}, fences)
    assert fences.replace('{"fence":1}') == '{"fence":7}'
    for expected, real in [({"fence": 1}, {"fence": 8}), ({"fence": 2}, {"fence": 7}),
                           ({"a": 1}, {"a": 2}), ({"a": 1}, {"a": True}), ({"a": 1}, {}), ({}, {"a": 1}),
                           ({"host": "x"}, {"host": 1}), ([1], [1, 2]), ({"fence": 3}, {"fence": 1.5})]:
        with pytest.raises(Mismatch):
            match(expected, real, fences)
