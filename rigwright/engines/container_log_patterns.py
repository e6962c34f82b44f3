"""Causes in messages of Docker, Podman, containerd, NVIDIA's container toolkit, systemd and the loader of modules.

Sources: libnvidia-container and nvidia-container-toolkit, moby, containerd, runc and crun, systemd's exit-status.c,
kmod's modprobe and dkms.
"""

from __future__ import annotations

from rigwright.engines.log_causes import Cause

_TOOLKIT = "install nvidia-container-toolkit, run `nvidia-ctk runtime configure` (or generate the CDI spec), restart it"

CONTAINERS = (
    Cause(
        "container-toolkit",
        r"could not select device driver|unknown or invalid runtime name: nvidia|[Uu]nknown runtime specified nvidia"
        r"|exec: \"?nvidia-container-runtime[\w-]{0,80}\"?: executable file not found|nvidia-container-cli: (?:command "
        r")?not "
        r"found|no known GPU vendor found",
        f"the container engine has no support for NVIDIA cards: {_TOOLKIT}",
    ),
    Cause(
        "device-node-missing",
        r"/dev/nvidia[\w-]{0,80}[`'\"]?:? .{0,20}(?:[Nn]o such (?:file|device)|does not exist|not found)|gathering "
        r"device information .{0,60}/dev/nvidia",
        "a device file of the driver does not exist: load its modules (`nvidia-modprobe -u -c=0`, `modprobe "
        "nvidia_uvm`), and "
        "regenerate the CDI spec after a change of the driver or cards",
        check="N03",
        names=r"(/dev/nvidia[\w-]{0,80})",
    ),
    Cause(
        "container-driver",
        r"nvidia-container-cli: (?!.{0,200}version mismatch).{0,200}(?:driver not loaded|load library failed|nvml "
        r"error: (?:insufficient"
        r"|unknown error))|nvidia-container-cli: initialization error(?!.{0,200}version mismatch)",
        "the host's NVIDIA driver does not answer the container toolkit: check `nvidia-smi` on the host first",
        check="N02",
    ),
    Cause(
        "container-mismatch",
        r"nvidia-container-cli: .{0,200}driver/library version mismatch",
        "the loaded driver and its libraries have different versions: reboot the host",
        check="N02",
    ),
    Cause(
        "container-cuda",
        r"requirement error: unsatisfied condition",
        "the image needs a newer driver than the host has: upgrade the driver, or use an image of an older CUDA",
        names=r"unsatisfied condition: ([^,]{1,60})",
    ),
    Cause(
        "container-device",
        r"nvidia-container-cli: device error|unknown device|unresolvable CDI devices|[Ff]ailed to inject CDI devices"
        r"|CDI device injection failed|failed to stat CDI host device|cannot stat .?/dev/nvidia",
        "a card that the container asks for does not exist by that name: compare with `nvidia-smi -L`, regenerate "
        "the CDI spec after a change of driver or cards",
        names=r"devices? (nvidia\.com/gpu=[\w-]{1,80})|device error: (\S{1,60}):",
    ),
    Cause(
        "container-cgroup",
        r"nvidia-container-cli: .{0,200}(?:cgroup|device rules|bpf)|cgroups?: .{0,100}(?:not found|no such file"
        r"|permission denied)|cgroup .{0,60}does not exist|bpf_prog_query\(BPF_CGROUP_DEVICE\) failed",
        "the container toolkit cannot set the cgroup's device rules, for example in a rootless or nested container: "
        "set "
        "no-cgroups = true for it, or use CDI",
    ),
    Cause(
        "container-toolkit-mount",
        r"nvidia-container-cli: (?:mount|ldcache|container|detection) error",
        "the container toolkit cannot mount the driver into the container: the line names the file; update the "
        "toolkit, "
        "and check that the image's file system is writable",
        names=r"error: (.{1,80})",
    ),
    Cause(
        "docker-daemon",
        r"[Cc]annot connect to the Docker daemon|permission denied while trying to connect to the [Dd]ocker"
        r"|Is the docker daemon running",
        "the Docker daemon does not run, or the user has no access to it: `systemctl status docker`, group docker",
    ),
    Cause(
        "image-missing",
        r"pull access denied|manifest unknown|manifest for .{0,200}not found|repository does not exist or may require"
        r"|no such image|reading manifest .{0,200}(?:unknown|not found)",
        "the registry has no such image or tag, or needs a login: check the name",
        names=r"(?:for|manifest) (?!for )([\w./:@-]{3,80})",
    ),
    Cause(
        "image-platform",
        r"no matching manifest for|exec format error|does not match the detected host platform",
        "the image or program is for another processor architecture",
        names=r"manifest for (\S{1,40})",
    ),
    Cause(
        "container-program",
        r"\bexec /\S{1,80}: no such file|executable file (?:`[^`]{1,80}` )?not found in \$PATH|exec: "
        r"\"[^\"]{1,80}\": (?:stat .{0,100}: )?no such "
        r"file",
        "the image has no such program: its entry point already starts the engine, so pass only the arguments",
        names=r"exec: \"([^\"]{1,80})\"|file `([^`]{1,80})`",
    ),
    Cause(
        "container-name",
        r"Conflict\. The container name|is already in use by container|name .{0,80}is already in use",
        "a container of that name exists: remove it",
    ),
    Cause(
        "selinux",
        r"avc: {1,20}denied|SELinux is preventing|apparmor=\"DENIED\"",
        "SELinux or AppArmor forbids the access: set the label or profile, or grant the access",
        names=r"name=\"?([^\" ]{1,80})",
    ),
    Cause(
        "container-start",
        r"OCI runtime create failed|failed to create (?:shim task|task for container)|docker: Error response from "
        r"daemon"
        r"|OCI runtime error",
        "the container engine could not start the container: the end of the line states the reason",
        broad=True,
    ),
    Cause(
        "unit-program",
        r"status=203/EXEC|Failed at step EXEC|Failed to execute .{0,200}No such file",
        "the unit's program does not exist or is not executable: check ExecStart and its permissions",
    ),
    Cause(
        "unit-user",
        r"status=217/USER|Failed at step USER|Failed to determine user credentials",
        "the unit's user does not exist",
    ),
    Cause(
        "unit-namespace",
        r"status=226/NAMESPACE|Failed at step NAMESPACE|Failed to set up mount namespacing",
        "a path of the unit's sandbox does not exist: create it, or remove it from ReadWritePaths or BindPaths",
        names=r"namespacing: (\S{1,80}):",
    ),
    Cause(
        "unit-directory",
        r"status=200/CHDIR|Failed at step CHDIR|Changing to the requested working directory failed",
        "the unit's working directory does not exist",
    ),
    Cause(
        "unit-credentials",
        r"status=243/CREDENTIALS|Failed at step CREDENTIALS|Failed to set up credentials",
        "a credential of the unit is missing or cannot be decrypted",
    ),
    Cause(
        "unit-timeout",
        r"[Ss]tart(?:-pre)? operation timed out|Failed with result 'timeout'|[Ww]atchdog timeout",
        "the service did not become ready in time: raise its start timeout, or see where it waits",
    ),
    Cause(
        "killed",
        r"code=killed, (?:signal|status)=(?:9/)?KILL|exit(?:ed)?(?: with)?(?: exit)? ?(?:code|status):? ?\(?(?:-9"
        r"|137)\b"
        r"|\bSIGKILL\b|^\s{0,20}(?:\S{1,80}: line \d{1,20}: {1,20}\d{1,20} {1,20})?Killed\b|signal: killed|OOMKilled",
        "the kernel or a user killed the process, most often because the host's memory ran out: see `journalctl -k "
        "--grep oom`, raise "
        "its memory limit, or load less into RAM",
    ),
)
"""Causes of containers and units."""
