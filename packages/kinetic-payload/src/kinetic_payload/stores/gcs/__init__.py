"""Buckets of Google Cloud Storage: the only importer of Google's libraries.

Objects move over google-auth's sessions. Importing this takes a quarter of a second for google-auth and
requests; `kinetic_payload.stores` does so when a bucket is opened, and nothing does before.
"""

from kinetic_payload.stores.gcs.bucket import Bucket, BucketObject
from kinetic_payload.stores.gcs.external import ExternalBucket
from kinetic_payload.stores.gcs.retry import RetryPolicy
from kinetic_payload.stores.gcs.service import Service
from kinetic_payload.stores.gcs.store import GcsStore

__all__ = ["Bucket", "BucketObject", "ExternalBucket", "GcsStore", "RetryPolicy", "Service"]
