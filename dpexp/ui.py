"""`task=ui`: the MLflow UI on the store, for as long as it is wanted."""

import webbrowser
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dpexp import _validate
from dpexp.experiment import Experiment
from dpexp.stopping import Stopped
from dpexp.tracking import VIEW_NAME, connect, has_view, shown_uri, ui_address, view_link
from dpexp.tracking.server import free_port, mlflow_ui

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Ui"]

_MOST = 10  # links


@final
@dataclass(frozen=True, kw_only=True)
class Ui:
    """Shows the runs in a browser: the MLflow UI on loopback, or the address of the server that holds them.

    Attributes:
        port: 1 to 65535; where it is taken, the next free one is used.
        open: Also opens the first link in a browser.
    """

    makes = ()
    port: int = 5000
    open: bool = False

    def __post_init__(self) -> None:
        _validate.integer("task.port", self.port, at_least=1)
        _validate.number("task.port", self.port, at_most=65535)
        if not isinstance(self.open, bool):
            raise _validate.refuse("task.open", self.open, "true or false")

    def run(self, experiment: Experiment) -> None:
        """Prints the links and serves until Ctrl-C; the view of `experiment` comes first.

        Raises:
            UserError: The store cannot be opened, or the server does not start.
        """
        tracking = experiment.tracking
        uri = tracking.resolved_uri
        client = connect(uri, tracking.folder)
        wanted = tracking.experiment or experiment.name
        if uri.startswith("http"):
            self._show(client, uri, wanted)
            return
        port = free_port("task.port", self.port)
        if port != self.port:
            print(f"Port {self.port} is taken; {port} is free.")
        print(f"Starting the MLflow UI on {shown_uri(uri)} …", flush=True)
        try:
            with mlflow_ui(uri, tracking.folder, port=port) as server:
                self._show(client, server.address, wanted)
                print("Ctrl-C ends it.", flush=True)
                server.wait()
        except Stopped:
            print("\nThe MLflow UI has ended.")

    def _show(self, client: "MlflowClient", server: str, wanted: str) -> None:
        links = _links(client, server, wanted)
        width = max(len(name) for name, _ in links)
        for name, link in links:
            print(f"{name:{width}}  {link}")
        if self.open:
            webbrowser.open(links[0][1])


def _links(client: "MlflowClient", server: str, wanted: str) -> list[tuple[str, str]]:
    """The views, `wanted` and then what was used last first; then everything."""
    found = client.search_experiments(order_by=["last_update_time DESC"])
    shown = sorted((one for one in found if has_view(one.tags)), key=lambda one: one.name != wanted)
    views = [(f"{VIEW_NAME} of {one.name}", view_link(server, one.experiment_id)) for one in shown[:_MOST]]
    return [*views, ("everything", f"{ui_address(server)}/#/experiments")]
