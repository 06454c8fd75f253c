"""`trainmaster forward`: a port of this machine that leads to a port of a job."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from typing import Annotated

from trainmaster.cli.support.console import say, write_error, write_json
from trainmaster.cli.support.options import AsJson, JobName, argument, option
from trainmaster.cli.support.tunnel import carry
from trainmaster.client.manager_api import ManagerApi, job_path
from trainmaster.client.polling import row_now
from trainmaster.errors import BadInput, CommandError, Failed, system_reason

HERE = "127.0.0.1"
MOST = 64
"""Connections at once; browsers open about six to one place."""
LOOK_S = 2.0
"""How often it is looked whether the job has ended."""
MOST_PORT = 65535


def forward(
    client: ManagerApi,
    job: JobName,
    port: Annotated[int, argument("PORT", "The port that the job listens on.")],
    local_port: Annotated[
        int | None, option("--local-port N", "Port of this machine. Default: a free one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reach a port that a job listens on from this machine: TensorBoard, a notebook, a debugger.

    It listens on 127.0.0.1 only, until Ctrl-C or the end of the job. Every connection goes through the
    manager, so it works from another machine too. The port must be held by a process of the job itself.

    Examples:
        trainmaster forward 12 6006
        trainmaster forward notebook 8888 --local-port 8888
    """
    for number in (port, local_port):
        if number is not None and not 1 <= number <= MOST_PORT:
            raise BadInput(f"{number} is not a port: ports go from 1 to {MOST_PORT}.")
    id = str(client.get(job_path(job, f"ports/{port}"))["job"])
    listener = _listener(local_port)
    own = listener.getsockname()[1]
    if as_json:
        write_json({"job": id, "port": port, "local_port": own, "url": f"http://{HERE}:{own}"})
        sys.stdout.flush()
    else:
        say(f"http://{HERE}:{own} leads to port {port} of job {id}, until Ctrl-C.")
    with listener:
        threading.Thread(
            target=_accept, args=(client, listener, job_path(id, f"ports/{port}")), daemon=True
        ).start()
        with suppress(KeyboardInterrupt):
            _until_end(client, id)


def _listener(port: int | None) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HERE, port or 0))
        made.listen()
    except OSError as error:
        made.close()
        raise Failed(
            f"{HERE}:{port}: {system_reason(error)}; without --local-port a free port is taken."
        ) from None
    return made


def _accept(client: ManagerApi, listener: socket.socket, path: str) -> None:
    """Carry each connection in a thread of its own; more than there may be wait."""
    free = threading.BoundedSemaphore(MOST)
    last = ""

    def one(connection: socket.socket) -> None:
        nonlocal last
        with connection:
            try:
                carry(client, path, connection)
            except CommandError as error:
                if str(error) != last:
                    write_error(f"Note: {error}\n")
                last = str(error)
            finally:
                free.release()

    while True:
        free.acquire()
        try:
            connection, _ = listener.accept()
        except OSError:  # it is over
            return
        threading.Thread(target=one, args=(connection,), daemon=True).start()


def _until_end(client: ManagerApi, id: str) -> None:
    over = threading.Event()
    while True:
        row = row_now(client, id)
        if row.has_ended:
            write_error(f"Job {id} has ended.\n")
            return
        over.wait(LOOK_S)
