"""IAM policies as values: how they are read and replaced."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, Final

from google.iam.v1 import policy_pb2

_ETAGS: Final = itertools.count(1)


def read(policy: policy_pb2.Policy, version: int) -> policy_pb2.Policy:
    """Return *policy* as a caller sees it who understands *version*."""
    shown = policy_pb2.Policy()
    shown.CopyFrom(policy)
    for binding in shown.bindings if version < 3 else ():
        if binding.HasField("condition"):
            digest = hashlib.sha256(binding.condition.SerializeToString()).hexdigest()[:20]
            binding.role += f"_withcond_{digest}"
            binding.ClearField("condition")
            shown.version = 1
    return shown


def replaced(old: policy_pb2.Policy, new: policy_pb2.Policy) -> policy_pb2.Policy | None:
    """Return the policy after *old* was replaced with *new*; None: they say the same."""
    found: dict[tuple[str, bytes], Any] = {}
    for binding in new.bindings:
        key = (binding.role, binding.condition.SerializeToString())
        merged = found.setdefault(key, policy_pb2.Binding())
        members = sorted({*merged.members, *binding.members})
        merged.CopyFrom(binding)
        merged.members[:] = members
    bindings = [found[key] for key in sorted(found) if found[key].members]
    # Version 2 never existed.
    made = policy_pb2.Policy(version=new.version or 1, bindings=bindings)
    made.audit_configs.extend(new.audit_configs or old.audit_configs)
    if (made.bindings, made.audit_configs) == (old.bindings, old.audit_configs):
        return None
    made.etag = new_etag()
    return made


def new_etag() -> bytes:
    """Return an etag that no policy has had."""
    return f"BwY{next(_ETAGS):08d}=".encode()


def is_stale(old: policy_pb2.Policy, new: policy_pb2.Policy) -> bool:
    """Return whether *new* was made from another policy than *old*."""
    return bool(new.etag) and new.etag != old.etag
