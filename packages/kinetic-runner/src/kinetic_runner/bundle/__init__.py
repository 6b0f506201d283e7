"""The runner as one file, and the start-up code of that file."""

from kinetic_runner.bundle.build import SIZE_LIMIT, build_bundle, bundle_digest, bundle_for

__all__ = ["SIZE_LIMIT", "build_bundle", "bundle_digest", "bundle_for"]
