"""Buckets of Google Cloud Storage, over `kinetic_payload.http`.

Importing this package takes a quarter of a second, for google-auth and requests; `kinetic_payload.stores` imports
it when a bucket is opened, and nothing imports it before.
"""

from kinetic_payload.stores.gcs.bucket import Bucket, BucketObject
from kinetic_payload.stores.gcs.external import ExternalBucket
from kinetic_payload.stores.gcs.retry import RetryPolicy
from kinetic_payload.stores.gcs.service import Service
from kinetic_payload.stores.gcs.store import GcsStore

__all__ = ["Bucket", "BucketObject", "ExternalBucket", "GcsStore", "RetryPolicy", "Service"]
