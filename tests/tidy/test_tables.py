"""The tables of the code against what is written about them for people."""

import re

import pytest
import source

OPTIONS = [dict(zip(("name", "type", "fallback", "least", "most", "reloadable", "help"), row))
           for row in source.rows("config/options.def")]
NAMES = [option["name"] for option in OPTIONS]
TEXTS = ("PATH", "GROUP", "BACKEND", "PREFIX")
WORDS = {"LEVEL": ("error", "warning", "notice", "info", "debug"), "LOSS": ("quarantine", "ignore")}
SAMPLE = "config/lockbroker.conf"
PAGE = "config/lockbroker.conf.5.scd"


def largest_unit(number, units):
    for unit, size in units:
        if number % size == 0 and (number or size == units[0][1]):
            return f"{number // size}{unit}"
    return str(number)


def shown(option, number):
    """A bound of the option as the documents write it."""
    value = int(number, 8 if option["type"] == "MODE" else 10)
    if option["type"] == "DURATION":
        if value == 0:
            return "0s"
        seconds = largest_unit(value, (("h", 3600000), ("m", 60000), ("s", 1000), ("ms", 1)))
        return {"1m": "60s", "24h": "24h"}.get(seconds, seconds)
    if option["type"] == "BYTES":
        return largest_unit(value, (("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)))
    if option["type"] == "MODE":
        return f"{value:04o}"
    return str(value)


def ids(rows):
    return [row["name"] if isinstance(row, dict) else row[1] for row in rows]


@pytest.mark.parametrize("option", OPTIONS, ids=ids(OPTIONS))
def test_option_in_the_sample(option):
    match = re.search(rf"((?:^# .*\n)+)(?:^#.*=.*\n)*^#{option['name']} =(.*)$",
                      source.text(SAMPLE), re.MULTILINE)
    assert match, "not in the sample"
    about = " ".join(match[1].replace("#", "").split())
    assert match[2].strip() == option["fallback"]
    assert ("(restart)" in about) == (option["reloadable"] == "false"), about
    if option["type"] in ("DURATION", "COUNT", "BYTES"):
        assert f"{shown(option, option['least'])} to {shown(option, option['most'])}" in about
    if option["type"] in WORDS:
        words = WORDS[option["type"]]
        assert ", ".join(words[:-1]) + " or " + words[-1] in about


@pytest.mark.parametrize("option", OPTIONS, ids=ids(OPTIONS))
def test_option_in_the_man_page(option):
    page = source.text(PAGE)
    match = re.search(rf"^\*{option['name']}\*\n((?:\t.*\n|\n)+)", page, re.MULTILINE)
    assert match, "not in the man page"
    about = " ".join(match[1].split())
    assert f"Default: {option['fallback'] or 'empty'}" in about
    assert ("Needs a restart." in about) == (option["reloadable"] == "false"), about
    if option["type"] in TEXTS:
        assert f"at most {option['most']} bytes" in about.lower()
    elif option["type"] in WORDS:
        assert f"range: {', '.join(WORDS[option['type']])}." in about
    else:
        assert f"range: {shown(option, option['least'])} to {shown(option, option['most'])}." in about


def test_no_option_is_documented_that_does_not_exist():
    sample = re.findall(r"^#?(\w+) =", source.text(SAMPLE), re.MULTILINE)
    options = source.text(PAGE).split("# OPTIONS")[1].split("# EXAMPLE")[0]
    assert sorted(sample) == sorted(NAMES)
    assert sorted(re.findall(r"^\*(\w+)\*$", options, re.MULTILINE)) == sorted(NAMES)


def test_names_of_options_in_other_documents_exist():
    """A `ttl_max` in the protocol and in pages of programs is one of the table."""
    for path, pattern in [("proto/PROTOCOL.md", r"[Tt]he option `(\w+)`"),
                          ("client/cli/lockbroker.1.scd", r"its option _(\w+)_"),
                          ("README.md", r"[Tt]he option `(\w+)`")]:
        named = set(re.findall(pattern, " ".join(source.text(path).split())))
        assert named <= set(NAMES), (path, named - set(NAMES))


OPS = source.rows("proto/ops.def")


@pytest.mark.parametrize("row", OPS, ids=ids(OPS))
def test_operation_in_the_protocol(row):
    protocol = source.text("proto/PROTOCOL.md")
    match = re.search(rf"^### {row[1]}\n(.*?)(?=^##)", protocol, re.MULTILINE | re.DOTALL)
    assert match, "it has no section"
    for field in re.findall(r"REQUEST_F_(\w+)", row[2]):
        assert f"`{field.lower()}`" in match[1], field
    words = set(re.findall(r"`(\w+)`", match[1]))
    others = {f.lower() for op in OPS for f in re.findall(r"REQUEST_F_(\w+)", op[2])}
    assert set(f.lower() for f in re.findall(r"REQUEST_F_(\w+)", row[3])) <= words & others


def test_errors_in_the_protocol():
    section = source.text("proto/PROTOCOL.md").split("\n## Errors\n")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert documented[1:] == [row[1] for row in source.rows("proto/errors.def")]


def test_errors_in_the_public_header():
    """In the same order, counted from 1: the numbers are part of the library's interface."""
    found = re.findall(r"^ +LB_E_(\w+) = (\d+),", source.text("client/lib/lockbroker.h"), re.MULTILINE)
    assert found == [(row[0], str(number)) for number, row in
                     enumerate(source.rows("proto/errors.def"), 1)]


FLAG = re.compile(r"--[a-z]+(?:-[a-z]+)*")


def flags_of_page(path):
    return set(FLAG.findall(source.text(path)))


def test_flags_of_the_daemon():
    main = source.text("daemon/main.c")
    known = {"--" + name for name in re.findall(r'^    \{"([a-z-]+)", \w+_argument', main, re.MULTILINE)}
    usage = set(FLAG.findall(main.split("static void print_help")[1].split("\n}")[0]))
    assert len(known) >= 8
    assert known == usage == flags_of_page("daemon/lockbrokerd.8.scd")


def commands():
    main = source.text("client/cli/main.c")
    found = re.findall(r'\{"(\w+)", \w+_main\}', main)
    assert len(found) >= 6
    return found


def test_commands_of_the_tool():
    page = source.text("client/cli/lockbroker.1.scd")
    for command in commands():
        assert re.search(rf"^\*lockbroker {command}\*", page, re.MULTILINE), command
        assert f'"  {command} ' in source.text("client/cli/main.c"), command


@pytest.mark.parametrize("command", commands())
def test_flags_of_the_tool(command):
    """Each flag is in the command's own help and in the man page, and the page has no other."""
    text = source.text(f"client/cli/{command}.c")
    known = set(re.findall(r'\{"(--[a-z-]+)", ARG_', text))
    usage = set(FLAG.findall(text.split("_help[] =")[1].split(";\n\n")[0]))
    assert known and known == usage - {"--help"}
    assert known <= flags_of_page("client/cli/lockbroker.1.scd")


def test_no_flag_is_documented_that_does_not_exist():
    known = {"--help", "--version"}
    for command in commands():
        known |= set(re.findall(r'\{"(--[a-z-]+)", ARG_', source.text(f"client/cli/{command}.c")))
    assert flags_of_page("client/cli/lockbroker.1.scd") == known


def test_exit_statuses_of_the_tool():
    codes = re.findall(r"EXIT_CODE_\w+ = (\d+)", source.text("client/cli/exit_code.h"))
    section = source.text("client/cli/lockbroker.1.scd").split("# EXIT STATUS")[1].split("\n# ")[0]
    listed = re.findall(r"^\*(\d+)\*", section.replace("*, *", "*\n*"), re.MULTILINE)
    assert len(codes) > 9 and listed == codes


def test_the_version_is_one():
    version = re.search(r"project\(lockbroker VERSION ([\d.]+)", source.text("CMakeLists.txt"))[1]
    assert re.search(rf"^## \[?{re.escape(version)}\]?", source.text("CHANGELOG.md"), re.MULTILINE)
