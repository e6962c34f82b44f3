"""Which NVIDIA driver a host should have, and why: decisions alone; nothing here installs one."""
