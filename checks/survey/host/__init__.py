"""The program that the survey runs on a host, as root: only Python's own library, 3.10 or newer.

A module a section, with `look(asked)`: it is given and returns what JSON has, changes nothing but the journal, and
starts programs by `common.run` alone. It imports `checks.survey.host.common` and nothing else of ours. An exception is
reported as the reason why there is no answer.
"""
