"""Checks of the local backend before anything is packaged."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic.backends.local.emulation import shape_of
from kinetic.errors import InvalidRequestError

if TYPE_CHECKING:
    from kinetic.submit.request import JobRequest
    from kinetic_payload.stores.store import Location


def check_request(request: JobRequest, store: Location) -> None:
    """Refuse a request that needs containers, a slice that is too large, or something that is missing here.

    Raises:
        InvalidRequestError: The hint says what to use instead.
    """
    shape_of(request.accelerator, request.semantics)
    if sys.platform == "linux" and not Path("/proc/self").exists():
        raise InvalidRequestError(
            "The local backend needs /proc to find the processes of a job, and it is not mounted.",
            hint="Mount it: mount -t proc proc /proc",
        )
    if request.image.mode == "prebuilt":
        raise InvalidRequestError(
            "The local backend cannot use prebuilt images: it runs no containers.",
            hint=_IMAGES,
        )
    if request.image.mode == "custom":
        raise InvalidRequestError(
            f"The local backend runs no containers, so it cannot use {request.image.uri!r}.",
            hint=_IMAGES,
        )
    if request.pod_overrides:
        raise InvalidRequestError(
            "The local backend runs no pods, so pod_overrides cannot be applied.",
            hint="Leave pod_overrides out here, or put them into the profile of the cluster: jobs on this "
            "machine do not use those.",
        )
    # The folder where uv (0.13) makes environments for `uv run --with`: https://docs.astral.sh/uv/concepts/cache/
    if request.image.mode == "default" and re.fullmatch(
        r"builds-v\d+", Path(sys.prefix).parent.name
    ):
        raise InvalidRequestError(
            f"uv removes this Python when the program ends, and the job may run longer: {sys.executable}",
            hint="Name the packages in the script's metadata (uv add --script) or in the project (uv add) in place of "
            "--with or --isolated, or use container_image='bundled' for an isolated environment.",
        )
    if request.debug and request.image.mode == "default":
        from importlib.util import find_spec

        if find_spec("debugpy") is None:
            raise InvalidRequestError(
                "debug=True needs debugpy, which this Python does not have.",
                hint="Install it: python -m pip install debugpy",
            )
    if request.volumes:
        from kinetic.mount_paths import check_volumes
        from kinetic_runner.data.mounts import why_not_private

        folder = [store.path] if store.kind == "folder" else []
        check_volumes(request.volumes, workspaces=(request.settings.home.value, *folder))
        why_not = why_not_private()
        if why_not is not None:
            raise InvalidRequestError(
                f"A local job cannot have volumes here: {why_not}",
                hint="Pass the kinetic.Data as an argument instead: the function gets its path.",
            )


_IMAGES: Final = (
    "Leave container_image out to use this interpreter, "
    "or use container_image='bundled' for an isolated environment."
)
