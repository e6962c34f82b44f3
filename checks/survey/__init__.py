"""The survey: the facts of a host, found by one program in one command, from which the checks decide.

A check compares what the host told with what the rig declares, and asks the host nothing itself. Facts come from a
reader of their own: nothing here imports `roles`, and no script or parser of a role is used.
"""
