"""Data sets of the Hugging Face Hub, loaded by the user's own `datasets` library into a folder.

The library runs in a process of its own. So a project folder called `datasets` does not hide it, its changes
to the environment do not reach user code, and its memory is freed. Its settings (`HF_TOKEN`, `HF_ENDPOINT`,
`HF_HOME`, …) come from the environment.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import kinetic_payload
import kinetic_runner
from kinetic_payload.data.sources import HuggingFaceSource, parse_hf
from kinetic_payload.errors import DataError
from kinetic_payload.files.atomic import prepare_beside, rename_into_place
from kinetic_payload.progress import size_text
from kinetic_runner.data.progress import log_line

LIBRARY: Final = "datasets"
_WITHOUT_SCRIPTS: Final = 4
"""The first major version that does not run code of a data set."""
_ASKS_FOR_TRUST: Final = (2, 16)
_LONGEST: Final = 1000
_SET: Final = "set"
_RESULT: Final = "result.json"
_TOKENS: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME")
"""Variables that provide a token for this job. A token that is only stored on the machine is not used:
otherwise a data set would load on a laptop but not on a cluster."""
_START: Final = (
    "import sys; sys.path[:0] = sys.argv[2:]; "
    "from kinetic_runner.data.huggingface import main; main(sys.argv[1])"
)


def why_unusable(uri: str, version: str | None, *, trusts: bool) -> DataError | None:
    """Return why the `datasets` library of *version* (None: not installed) cannot load *uri*."""
    if version is None:
        return DataError(
            f"{uri} needs the library 'datasets', which is not installed.",
            hint="Add 'datasets' to the requirements of your project: this library loads data of the Hub.",
        )
    if trusts and _numbers(version)[0] >= _WITHOUT_SCRIPTS:
        return DataError(
            f"{uri} cannot run code of its own: datasets {version} does not support this any more.",
            hint="Omit hf_trust_remote_code if the data set also exists as plain files, "
            "or require 'datasets<4'.",
        )
    return None


def load(
    uri: str,
    dest: Path,
    *,
    trusts: bool = False,
    print_line: Callable[[str], None] = log_line,
    interpreter: str = sys.executable,
) -> None:
    """Load the data set that *uri* names and save it as the folder *dest*: whole, or not at all.

    Raises:
        DataError: The library is missing, or could not load the data set; its own message is included.
    """
    with prepare_beside(dest) as folder:
        print_line(f"loading {uri}")
        result = _run(interpreter, uri, folder, trusts=trusts)
        if "error" in result:
            raise DataError(result["error"], hint=result.get("hint"))
        rename_into_place(folder / _SET, dest)
        print_line(f"loaded {uri}: {result['words']}")


def _run(interpreter: str, uri: str, folder: Path, *, trusts: bool) -> dict[str, Any]:
    paths = [
        os.path.dirname(os.path.dirname(os.path.abspath(str(file))))  # noqa: PTH100, PTH120
        for file in (kinetic_runner.__file__, kinetic_payload.__file__)
    ]
    task = json.dumps({"uri": uri, "folder": str(folder), "trusts": trusts})
    # `-P`: neither the project's folders nor the working directory are on the import path.
    command = [interpreter, "-P", "-u", "-c", _START, task, *dict.fromkeys(paths)]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL) as process:
        try:
            status = process.wait()
        except BaseException:
            process.kill()
            raise
    try:
        result: dict[str, Any] = json.loads((folder / _RESULT).read_bytes())
    except (OSError, ValueError):
        words = f"it ended with exit code {status}"
        if status < 0:
            words = f"it was killed by signal {-status}"
            words += ", possibly for lack of memory" if status == -9 else ""
        return {"error": f"The library 'datasets' did not load {uri}: {words}."}
    return result


def main(task: str) -> None:
    """Load the data set of *task* in this process, and write the result to a file."""
    values = json.loads(task)
    folder = Path(values["folder"])
    result = _load(parse_hf(values["uri"]), values["uri"], folder / _SET, trusts=values["trusts"])
    (folder / _RESULT).write_text(json.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # Do not wait for threads of the libraries.


def _load(source: HuggingFaceSource, uri: str, dest: Path, *, trusts: bool) -> dict[str, Any]:
    environment = os.environ  # noqa: TID251 - this process is the library's alone
    # The library reads these when it is imported. Progress bars are for terminals.
    environment["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    environment["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    _choose_cache(environment, dest)
    version: str | None
    try:
        import datasets

        version = str(datasets.__version__)
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes into the outcome
        if not isinstance(error, ModuleNotFoundError) or error.name != LIBRARY:
            return {"error": f"The library 'datasets' cannot be imported: {_words(error)}"}
        version = None
    unusable = why_unusable(uri, version, trusts=trusts)
    if unusable is not None:
        return {"error": unusable.message, "hint": unusable.hint}
    assert version is not None
    has_token = any(environment.get(name) for name in _TOKENS)
    options: dict[str, Any] = {"token": None if has_token else False}
    if _ASKS_FOR_TRUST <= _numbers(version) < (_WITHOUT_SCRIPTS,):
        options["trust_remote_code"] = trusts
    try:
        loaded = datasets.load_dataset(
            _full_name(source, options["token"]),
            source.config_name,
            split=source.split,
            revision=source.revision,
            **options,
        )
        loaded.save_to_disk(str(dest))
    except Exception as error:  # noqa: BLE001
        return {
            "error": f"datasets {version} could not load it: {_words(error)}",
            "hint": _hint(error),
        }
    rows = f"{len(loaded):,} rows"
    if isinstance(loaded, Mapping):
        rows = ", ".join(f"{len(part):,} rows in {split}" for split, part in loaded.items())
    size = sum(path.stat().st_size for path in dest.rglob("*") if path.is_file())
    return {"words": f"{rows}, {size_text(size)} on disk"}


def _full_name(source: HuggingFaceSource, token: Any) -> str:
    """Return the name with its organisation, `stanfordnlp/imdb` for `imdb`.

    The Hub resolves such old names; newer versions of the library do not accept them.
    """
    if "/" in source.repo:
        return source.repo
    try:
        from huggingface_hub import HfApi

        found = str(HfApi(token=token).dataset_info(source.repo, revision=source.revision).id)
    except Exception:  # noqa: BLE001 - the library itself reports what is wrong
        return source.repo
    return found or source.repo


def _hint(error: BaseException) -> str | None:
    """Return a hint for *error*, chosen by its class name: the library's versions differ."""
    names = {cls.__name__ for link in _chain(error) for cls in type(link).__mro__}
    text = " ".join(map(str, _chain(error)))
    if "RevisionNotFoundError" in names:
        return "Check the revision: a branch, a tag or a commit of the data set."
    if names & {"DatasetNotFoundError", "GatedRepoError", "RepositoryNotFoundError"} or re.search(
        r"\b40[13]\b|gated|authenticat", text
    ):
        return (
            "Check the name. If it is gated or private, pass a token that may read it: "
            "@kinetic.run(..., capture_env_vars=['HF_TOKEN'])."
        )
    if names & {"ConnectionError", "ConnectError", "TimeoutException", "OfflineModeIsEnabled"}:
        return (
            "The job could not reach the Hub. To pass HF_ENDPOINT and HF_HUB_OFFLINE to the job, use "
            "capture_env_vars=['HF_*']; add the names of proxy variables, such as HTTPS_PROXY."
        )
    return None


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in links:
        links.append(found)
        found = found.__cause__ or found.__context__
    return links


def _choose_cache(environment: Any, dest: Path) -> None:
    """Use the library's own cache, so that data on this machine are not downloaded again.

    If it is not writable, as in containers of users without a home, use a folder beside the data.
    """
    if any(environment.get(name) for name in ("HF_HOME", "HF_DATASETS_CACHE", "XDG_CACHE_HOME")):
        return
    try:
        cache = Path("~/.cache/huggingface").expanduser()
        cache.mkdir(parents=True, exist_ok=True)
        usable = os.access(cache, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):  # The latter where the user has no home at all.
        usable = False
    if not usable:
        environment["HF_HOME"] = str(dest.with_name("cache"))


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text[:_LONGEST]} …" if len(text) > _LONGEST else text


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:2])) or (0,)
