"""Monitoring: the metrics that a box exports, and the services that collect, keep and alert on one box of a fleet."""
