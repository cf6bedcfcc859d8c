"""`minitp app`: this process becomes Streamlit's server, so Ctrl-C and kill end all there is."""
import errno
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import minitp
from minitp.errors import ConfigError, LaunchError
from minitp.launcher.mpiexec import python_command

ADDRESS, PORT = "localhost", 8501
_TRIES = 50                            # ports after the first one that are tried where none was asked for


def serve(port: int | None, browser: bool, runs: Path | None) -> None:
    """Print the address and serve the app until it is stopped. Doesn't return.

      port     to listen on; None: the first free one from 8501 on
      browser  open the page in the user's browser
      runs     the runs folder, instead of the usual one
    """
    main = main_script()
    if find_spec("streamlit") is None or find_spec("plotly") is None:
        raise LaunchError("the app needs Streamlit and Plotly: pip install 'minitp[app]'")
    if runs is not None:
        if not runs.expanduser().is_dir():
            raise ConfigError(f"--runs {runs}: there is no such folder")
        os.environ["MINITP_RUNS"] = str(runs.expanduser().resolve())
    command = [*python_command(), "-m", "minitp.commands.app_server", "run", str(main),
               f"--server.port={free_port(port)}", f"--server.headless={'false' if browser else 'true'}"]
    sys.stdout.flush()
    os.execv(command[0], command)


def main_script() -> Path:
    """app/main.py of a source folder, or of an installed wheel."""
    inside = Path(minitp.__file__).parent
    for folder in (inside / "_app", inside.parent / "app"):
        if (folder / "main.py").is_file():
            return folder / "main.py"
    raise LaunchError("this minitp was installed without its app; install it from a wheel or a source folder")


def free_port(asked: int | None) -> int:
    """The port that was asked for, or the first free one. LaunchError where it is taken."""
    if asked is not None:
        try:
            free = _is_free(asked)
        except PermissionError as error:
            raise LaunchError(f"this user may not listen on port {asked}; ports from 1024 on are open to all, and "
                              "without --port a free one is found") from error
        if not free:
            raise LaunchError(f"port {asked} is in use, maybe by another `minitp app`; give another one, or leave out "
                              "--port for a free one")
        return asked
    for port in range(PORT, PORT + _TRIES):
        if _is_free(port):
            return port
    raise LaunchError(f"no port from {PORT} to {PORT + _TRIES - 1} is free; give one: minitp app --port N")


def _is_free(port: int) -> bool:
    """Whether a server can listen there on every address that `localhost` stands for. PermissionError where this user
    never may."""
    for family, _, _, _, address in socket.getaddrinfo(ADDRESS, port, type=socket.SOCK_STREAM):
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind(address)
            except PermissionError:
                raise
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:           # IPv6 is off on this machine
                    continue
                return False
    return True
