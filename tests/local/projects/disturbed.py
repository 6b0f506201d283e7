import pathlib
import sys
from functools import partial

from kinetic.backends.local.backend import LocalBackend
from kinetic.errors import KineticError
from kinetic.jobs.services import Services, connect, jobs_location
from kinetic.jobs.stop import cancel, clean_up
from kinetic.settings.settings import Settings
from kinetic.submit.options import check_options
from kinetic.submit.request import request_of
from kinetic.submit.submit import submit
from kinetic.target import Target
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_servers.launches import job_ids_of

ACTS = {"cancel": cancel, "clean up": partial(clean_up, resource=True, artifacts=True)}

RAN = str(pathlib.Path("ran").absolute())


def work():
    import time

    time.sleep(1)
    pathlib.Path(RAN).touch()


class Disturbed(LocalBackend):
    def start(self, launch):
        other = connect("local", Target(), location, settings)
        ACTS[sys.argv[1]](launch.record, other, timeout=60, poll_interval=0.05)
        super().start(launch)


if __name__ == "__main__":
    settings = Settings.from_environment()
    home, location = pathlib.Path(settings.home.value), jobs_location(settings, "local")
    request = request_of(
        check_options(accelerator="cpu", backend="local"),
        work,
        settings,
        environ={},
        cwd=pathlib.Path.cwd(),
    )
    store = FolderStore(pathlib.Path(location.path))
    backend = Disturbed(home, store)
    try:
        job = submit(request, work, (), {}, services=Services(store, backend))
        for _ in job.log_lines(follow=True):
            pass  # Until nothing of it runs any more.
        job.result(timeout=100)
    except KineticError as error:
        print(type(error).__name__, "cleaned up by another process" in str(error))
    left = [one.name for one in store.list() if not one.name.startswith(("contexts/", "logs/"))]
    print(len(left) > 0, len(job_ids_of(backend)))
