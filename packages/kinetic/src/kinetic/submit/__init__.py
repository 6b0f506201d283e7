"""Submit a call: check it, package it, upload it and start its job."""
