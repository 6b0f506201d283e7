"""From the arguments of a call to a started job."""
