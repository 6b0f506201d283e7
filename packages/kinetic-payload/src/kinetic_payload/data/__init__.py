"""`Data` on the wire: uploaded, referred to by a call, and downloaded."""
