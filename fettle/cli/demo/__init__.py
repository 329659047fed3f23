"""`fettle demo`: the main job on an embedded fleet, told by asking a served Fettle over HTTP."""
