"""`kinetic completion`."""

from __future__ import annotations

import click

from kinetic_cli.app import App


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of `kinetic` for SHELL.

    \b
    bash: echo 'eval "$(kinetic completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(kinetic completion zsh)"' >> ~/.zshrc
    fish: kinetic completion fish > ~/.config/fish/completions/kinetic.fish
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    app: App = ctx.obj
    root = ctx.find_root()
    app.output.line(completion_class(root.command, {}, "kinetic", "_KINETIC_COMPLETE").source())
