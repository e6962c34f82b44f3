"""How the project is built: the wheel, and the command that it installs."""
