"""The shipped inventories on throwaway hosts: their own text, with addresses, and what stands in for what is elsewhere.

What is served by vLLM is served by `tests/hosts/image/server.py`, in a wheel of vLLM's name and version; what llama.cpp
would compile for a card is its build for the CPU, which opens the card's device files; the toolkit compiles nothing.
All else is what every box has: real systemd, apt, environments, llama.cpp for the CPU, gateway and checks.
"""
