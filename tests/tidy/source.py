"""The repository's own text, as the tidy tests see it."""

import os
import re
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("proto", "config", "daemon", "client")


@lru_cache(maxsize=None)
def files(*tops, suffixes=()):
    """Paths relative to the root, sorted: below these folders, or everywhere.

    Hidden folders and build folders are no source, whether or not git knows them.
    """
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders
                      if not name.startswith((".", "build", "__pycache__")) or name == ".ci"]
        for name in names:
            path = Path(folder, name).relative_to(ROOT)
            if (not tops or path.parts[0] in tops) and (not suffixes or path.suffix in suffixes):
                found.append(path)
    assert found, (tops, suffixes)
    return tuple(sorted(found))


def c_files(*tops):
    return files(*tops, suffixes=(".c", ".h"))


@lru_cache(maxsize=None)
def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


@lru_cache(maxsize=None)
def code(path):
    """The C code without what its comments and texts say; lines keep their numbers."""
    def blank(match):
        return "\n" * match[0].count("\n") if match[0].startswith("/") else '""'
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text(path), flags=re.DOTALL)


def rows(path):
    """The X() rows of a .def table, each as a list of its arguments; adjacent texts are joined."""
    body = re.sub(r"^//.*$", "", text(path), flags=re.MULTILINE)
    found = []
    for row in re.findall(r'^X\(((?:"(?:\\.|[^"\\])*"|[^")])*)\)', body, re.MULTILINE):
        arguments = re.findall(r'((?:\s*"(?:\\.|[^"\\])*")+|[^",]+)(?:,|$)', row)
        found.append(["".join(re.findall(r'"((?:\\.|[^"\\])*)"', argument)) if '"' in argument
                      else " ".join(argument.split()) for argument in arguments])
    assert found, path
    return found


def show(problems):
    """Fails with one problem a line."""
    assert not problems, "\n" + "\n".join(str(problem) for problem in problems)
