"""`tidelog completion`: the script that lets a shell complete commands, flags and topic names."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Examples:
      eval "$(tidelog completion bash)"                                   # in ~/.bashrc
      eval "$(tidelog completion zsh)"                                    # in ~/.zshrc
      tidelog completion fish > ~/.config/fish/completions/tidelog.fish
    """
    from tidelog.cli.app import app

    completion_class = get_completion_class(shell)
    assert completion_class is not None, f"click knows {shell}"
    click.echo(completion_class(app, {}, "tidelog", "_TIDELOG_COMPLETE").source())
