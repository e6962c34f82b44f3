"""Stand-ins for NVIDIA's driver on throwaway hosts: archives, packages, kernel and tools. None of them computes."""
