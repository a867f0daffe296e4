"""The command `tidelog`: one file a command. This module decides how much of Python to load for it.

A broker must be ready in less than 300 ms, and the library behind the other commands takes 80 of them to import. So a
plain `tidelog serve` is read by hand (`serve_flags`); help, completion, and whatever looks wrong go to click, which
has the same flags from the same table.
"""

import sys


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        from tidelog.cli.serve_flags import parse_plain

        given = parse_plain(arguments[1:])
        if given is not None:
            from tidelog.cli.serve import run

            sys.exit(run(given))
    from tidelog.cli.app import app

    app(prog_name="tidelog")
