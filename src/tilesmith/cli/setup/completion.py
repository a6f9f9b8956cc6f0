"""``tilesmith completion bash``: a script by which the shell completes commands and options.

The script holds all names, so pressing Tab starts no Python. It is made anew after an update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tilesmith.cli.main import COMMANDS, load_command
from tilesmith.cli.output import show, tell

USAGE_ERROR = 2
HELP = {"--help": "Show this message and exit."}
FISH = "complete -c tilesmith -n"
Options = dict[str, str]

BASH = """\
_tilesmith() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words
    if (( COMP_CWORD == 1 )); then
        words="{commands}"
    else
        case ${{COMP_WORDS[1]}} in
{cases}
        esac
        [[ $current == -* || -z $words ]] || words=""
    fi
    COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -o bashdefault -F _tilesmith tilesmith
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n" + BASH


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish")],
) -> None:
    """Print a script that completes commands and options.

    bash: tilesmith completion bash >> ~/.bashrc

    zsh: tilesmith completion zsh >> ~/.zshrc

    fish: tilesmith completion fish > ~/.config/fish/completions/tilesmith.fish
    """
    makers = {"bash": lambda: _bash(BASH), "zsh": lambda: _bash(ZSH), "fish": _fish}
    if shell not in makers:
        tell(f"error: {shell!r} is not known; expected {', '.join(makers)}")
        raise typer.Exit(USAGE_ERROR)
    show(makers[shell]().rstrip())


def options_by_command() -> dict[str, Options]:
    """For each command, and each command of a group (``cache show``), its options with help."""
    found: dict[str, Options] = {}
    for name in COMMANDS:
        command = load_command(name)
        found[name] = _options(command)
        for inner, part in getattr(command, "commands", {}).items():
            found[f"{name} {inner}"] = _options(part)
    return found


def _options(command: Any) -> Options:
    named = {
        flag: str(getattr(item, "help", "") or "")
        for item in command.params
        for flag in (*item.opts, *item.secondary_opts)
        if flag.startswith("--")
    }
    return named | HELP


def _bash(template: str) -> str:
    cases = "\n".join(_cases(options_by_command()))
    return template.format(commands=" ".join([*COMMANDS, "--help", "--version"]), cases=cases)


def _cases(found: dict[str, Options]) -> Iterator[str]:
    for name in COMMANDS:
        inner = [other.split()[1] for other in found if other.startswith(f"{name} ")]
        words = {flag: "" for other in found if other.split()[0] == name for flag in found[other]}
        yield f'            {name}) words="{" ".join([*inner, *words])}" ;;'


def _fish() -> str:
    lines = [f"{FISH} __fish_use_subcommand -l version"]
    for name, (_, summary) in COMMANDS.items():
        lines.append(f"{FISH} __fish_use_subcommand -a {name} -d {_quoted(summary)}")
    for name, options in options_by_command().items():
        *outer, last = name.split()
        if outer:
            lines.append(f"{FISH} '__fish_seen_subcommand_from {outer[0]}' -a {last}")
        lines += [
            f"{FISH} '__fish_seen_subcommand_from {last}' -l {flag.removeprefix('--')} "
            f"-d {_quoted(text.partition(';')[0].partition(':')[0])}"
            for flag, text in options.items()
        ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def add_to(app: typer.Typer) -> None:
    """Make ``tilesmith completion`` known."""
    app.command()(completion)
