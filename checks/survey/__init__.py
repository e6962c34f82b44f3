"""The survey: what a host is, found by one program in one command, from which the checks decide.

A check compares what the host told with what the rig declares, and asks the host nothing itself. What is found is never
found by what made it so: nothing here imports `roles`, and no script or parser of a role is used.
"""
