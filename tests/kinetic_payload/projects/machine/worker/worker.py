"""What the runner's child does, in short."""

import os
import sys
from pathlib import Path

from kinetic_payload.calls import call as calls
from kinetic_payload.calls import main_module
from kinetic_payload.data import references

folder = Path(sys.argv[1])
project = folder / "project"
with open(folder / "payload.pkl", "rb") as stream:
    header = calls.read_header(stream)
    assert "cloudpickle" not in sys.modules
    sys.path[:1] = [str(project / path) for path in header.paths]
    sys.path.append(str(Path(__file__).parent.parent))  # `shipping`, in the place of `kinetic`
    os.chdir(project / header.cwd)
    main_module.rebuild(header, project)
    references.place({ref.key: f"/data/{ref.key}" for ref in header.data})
    call = calls.load_call(stream, header)
(folder / "warnings.txt").write_text("\n".join(call.warnings))
try:
    outcome = "returned", call.function(*call.args, **call.kwargs)
except BaseException as error:
    outcome = "raised", error
from kinetic_payload.calls.value_pickler import ValuePickler

with open(folder / "value.pkl", "wb") as stream:
    ValuePickler(stream).dump(outcome)
