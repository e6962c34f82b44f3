"""The shipped inventories on throwaway hosts: their own text, with addresses, and what stands in for what is elsewhere.

In the place of vLLM serves `tests/hosts/image/server.py`, in a wheel of vLLM's name and version; in the place of
llama.cpp's build for a card its build for the CPU, which opens the card's device files; the toolkit compiles nothing.
All else is what every box has: real systemd, apt, environments, llama.cpp for the CPU, gateway and checks.
"""
