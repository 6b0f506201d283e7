"""What all HTTP clients of Kinetic share: logins, retries, trust."""
