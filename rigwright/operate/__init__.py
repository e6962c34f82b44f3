"""Running a rig well: what its instances are asked, and what their answers and figures mean."""
