"""How a host reaches the outside, and the tools that it fetches and installs with."""
