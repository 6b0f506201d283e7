"""`kinetic dashboard`."""

from __future__ import annotations

import click

from kinetic_cli.app import App
from kinetic_cli.options import target_options

_PORT = 8642


@click.command("dashboard")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="Port on this machine; 0: any free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@target_options(hidden=True)
@click.pass_obj
def command(app: App, port: int, no_browser: bool) -> None:
    """Show jobs, batches and their logs in a browser, live; cancel, repeat and clean up.

    Only this machine can open the page, and the page loads nothing from another machine. Its address contains a token,
    new at each start; do not pass it on, because it gives access to all your jobs. If a cluster is named (--cluster, or a
    profile), its jobs, pools and costs are shown, too.
    """
    import secrets
    import socket
    import threading
    from contextlib import suppress

    from kinetic.errors import ConfigurationError, InvalidRequestError

    try:
        import uvicorn

        from kinetic_cli.commands.dashboard.server import Dashboard, Guard
    except ImportError as error:
        raise ConfigurationError(
            f"The dashboard needs Starlette and uvicorn, and this Python does not have {error.name}.",
            hint="Install them: python -m pip install starlette uvicorn",
        ) from error
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as error:
        raise InvalidRequestError(
            f"Port {port} of this machine cannot be used: {error.strerror}.",
            hint="Choose another one with --port, or any free one with --port 0.",
        ) from error
    app.print_warnings()
    token, ticket = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    port = listener.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(
            Guard(Dashboard(app).routes(), port, token, ticket),
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
        )
    )
    app.output.line(f"http://127.0.0.1:{port}/{token}/", flush=True)
    app.output.note("Ctrl-C ends the dashboard; jobs go on.")
    if not no_browser:
        _open(f"http://127.0.0.1:{port}/open/{ticket}")
    # A request that waits for a cluster, in a thread of this one, keeps nobody from ending the dashboard.
    serving = threading.Thread(target=server.run, args=([listener],), daemon=True)
    serving.start()
    with suppress(KeyboardInterrupt):
        serving.join()


def _open(address: str) -> None:
    """Open *address*, which works once: other users of this machine see the command lines of browsers."""
    import threading
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    # A browser of text would take the terminal.
    if type(browser) is not webbrowser.GenericBrowser:
        threading.Thread(target=browser.open, args=(address,), daemon=True).start()
