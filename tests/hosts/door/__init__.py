"""A gateway's nginx beside stand-ins of engines and the real router, for a throwaway host.

It imports the standard library alone. `python3 -B -m door FOLDER PORT NAME` runs one case there.
"""
