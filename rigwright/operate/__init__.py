"""Running a rig well: requests to its instances, and the meaning of their answers and figures."""
