"""The user's own fields of a pod: merged where they may be, refused where they change what is Kinetic's."""
