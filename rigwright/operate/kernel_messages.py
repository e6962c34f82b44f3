"""Kernel messages of a host: reboots, memory, disks, and NVIDIA's Xid errors.

Sources: NVIDIA's open-gpu-kernel-modules (kernel-open/nvidia/nv.c, nv-pci.c), the kernel's mm/oom_kill.c,
kernel/module/main.c, security/lockdown, drivers/pci/pcie/aer.c and drivers/iommu, and systemd's service.c and oomd.
"""

from __future__ import annotations

from rigwright.engines.log_causes import Cause

_FIRMWARE_SETTING = (
    "the firmware gave a card no address space for its memory: enable Above 4G Decoding and "
    "Resizable BAR in the BIOS setup, "
    "or add pci=realloc to the kernel's command line"
)
_SECURE_BOOT = (
    "Secure Boot refuses an unsigned module: enrol the key that signs it (`mokutil --import`), or turn Secure Boot off"
)

CAUSES = (
    Cause(
        "bar-space",
        r"BAR\d{1,20} is 0M @ 0x0|PCI I/O region assigned to your NVIDIA device is invalid|BAR \d{1,20}.{0,200}: "
        r"(can't assign|failed to assign|no space for)",
        _FIRMWARE_SETTING,
    ),
    Cause(
        "nvswitch",
        r"nvidia-nvswitch\d{1,20}: SXid",
        "an NVSwitch or one of its NVLinks fails: look up its SXid, reseat, or replace the baseboard",
    ),
    Cause(
        "card-off-the-bus",
        r"[Ff]allen off the bus|NV_ERR_GPU_IS_LOST|GPU lost from the bus|gpuHandleSanityCheckRegReadError|pciehp: "
        r"Slot\S{0,80} Link Down|GPU is probably on fire|Unable to change power state from \w{1,80} to D0, "
        r"device inaccessible",
        "a card no longer answers on the PCI bus: power the machine off and on; then check seat, "
        "riser and power cables",
    ),
    Cause(
        "card-too-old-for-open",
        r"is not supported by open|does not include the required GPU",
        "this card has no GSP: it needs NVIDIA's proprietary kernel module",
        check="N08",
    ),
    Cause(
        "card-needs-open",
        r"requires use of the NVIDIA open kernel modules|rmInit.{0,200}open kernel modules",
        "this card needs NVIDIA's open kernel module",
        check="N08",
    ),
    Cause(
        "card-legacy-branch",
        r"NVIDIA [0-9.x]{1,80} Legacy drivers|NVIDIA driver will ignore|supported through the NVIDIA",
        "this driver's branch no longer supports the card: install the last branch that does (the line names it)",
        check="N02",
    ),
    Cause(
        "card-does-not-start",
        r"RmInitAdapter failed|rm_init_adapter failed",
        "the driver cannot start a card: reboot; if this recurs: Above 4G Decoding and Resizable BAR in the BIOS "
        "setup, the "
        "open kernel module for new cards, then power cables, seat and another driver",
        check="N02,N09",
    ),
    Cause(
        "driver-mismatch",
        r"NVRM: API mismatch|this kernel module has the version",
        "the loaded driver differs from the installed one: stop the programs that use it and reboot",
    ),
    Cause(
        "card-bound-elsewhere",
        r"GPU .{0,200} is already bound to|NVIDIA probe routine was not called for|Nouveau.{0,200}conflict"
        r"|already (bound|in use) (to|by) (nouveau|vfio-pci|nvidiafb)",
        "another driver has the card: unbind it, or blacklist that driver and reboot",
    ),
    Cause(
        "no-card-in-kernel",
        r"NVRM: No NVIDIA (GPU|devices?) found|NVRM: No NVIDIA graphics adapter",
        "the driver finds no card that it supports",
        check="N01",
    ),
    Cause(
        "gsp-hung",
        r"(?:GSP RM|LibOS) heartbeat timed out|[Hh]eartbeat timed out|_kgspRpcRecvPoll: .{0,120}(?:[Tt]ime-?d? ?out"
        r"|unresponsive)|_kgspLogXid119|_issueRpcAndWait: .{0,80}(?:fail|timed ?out)|rpcRmApi\w{1,80}: .{0,80}GSP-RM "
        r"(?:failed|is not)|_kgspRpcGspEventFecsError|GSP (?:crashed|task|is not responding)",
        "the card's GSP firmware does not answer: reboot (power off and on if that does not help); if "
        "this recurs under load, use another driver version, and lower the card's power limit or clocks",
    ),
    Cause(
        "card-locked",
        r"GPU is probably locked|krcWatchdog\w{0,80}: .{0,80}(?:locked|[Tt]imeout)|RC watchdog",
        "the card no longer processes a program's work: end the program, else reboot; if this recurs under load, "
        "use another "
        "driver version and lower the power limit or clocks",
    ),
    Cause(
        "gpu-address-space",
        r"can't alloc VA space|dmaAllocMapping\w{0,80}: .{0,60}VA space",
        "the driver has no virtual addresses of a card left, most often a leak of the driver after a long time, not "
        "a lack of memory: reboot; if this recurs, use another driver version",
    ),
    Cause(
        "driver-memory",
        r"NV_ERR_NO_MEMORY|NVRM: .{0,120}(?:Out of memory|out of memory|failed to allocate (?:vmap|page))",
        "the driver found no memory for an allocation: where cards share the host's memory, leave more of it free "
        "(lower gpu_memory_utilization or the context, end other programs); a single such line that the engine "
        "survives "
        "does no harm",
    ),
    Cause(
        "gsp-firmware",
        r"WPR2|Cannot initialize GSP firmware|kfsp\w{1,80}: .{0,80}(?:[Ff]ail|[Tt]ime)|_kgspBoot\w{0,80}"
        r"|_kgsp\w{1,80}: .{0,80}(timed out|failed)|Failed to boot GSP|failed to load firmware .{0,200}gsp|GSP "
        r"firmware image.{0,200}(not found|failed)|Direct firmware load for nvidia/.{0,200} failed",
        "the card's GSP firmware did not start: power the machine off and on; if this recurs, "
        "reinstall the driver's firmware package, or use another driver or BIOS version",
    ),
    Cause(
        "module-missing",
        r"Module nvidia[-_\w]{0,80} not found in directory|modprobe: FATAL: Module nvidia|could not find module nvidia"
        r"|FATAL: Error running "
        r"install command for nvidia",
        "no NVIDIA module is built for the running kernel: install its headers, then `dkms autoinstall`, or reboot "
        "into the kernel "
        "that has it",
        names=r"directory (/lib/modules/\S{1,60})",
    ),
    Cause(
        "kernel-headers",
        r"[Kk]ernel headers for kernel .{0,60}(cannot be found|not found)|Unable to find the kernel source tree"
        r"|linux-headers-\S{1,80} .{0,60}"
        r"(not found|no installation candidate)|Please install the linux-headers",
        "the headers of the kernel are missing, so its module cannot be built: install linux-headers of that version",
        names=r"kernel (\d\S{1,40})|(linux-headers-\S{1,40})",
    ),
    Cause(
        "module-build",
        r"Bad return status for module build|bad exit status: \d{1,20}|DKMS: (build|install|add) .{0,40}failed"
        r"|Error! .{0,60}(build|dkms)|nvidia\S{0,80}: ERROR: .{0,60}build|dkms\S{0,80} (autoinstall"
        r"|build).{0,80}failed|make\[\d{1,20}\]: \*\*\* .{0,80}nvidia|Compiler version check failed",
        "the driver's module does not compile for this kernel: see make.log of dkms; upgrade the driver, install the "
        "kernel's own gcc, or "
        "boot the previous kernel",
        names=r"on kernel: (\S{1,40})|kernel (\d\S{1,40})",
    ),
    Cause(
        "module-busy",
        r"Module nvidia\w{0,80} is in use|nvidia\w{0,80} .{0,60}appears to already be loaded|rmmod: ERROR: Module "
        r"nvidia",
        "programs still use the loaded module: stop them (`fuser -v /dev/nvidia*`) or reboot",
    ),
    Cause(
        "module-no-device",
        r"could not insert 'nvidia\w{0,80}': No such device|NVRM: The NVIDIA probe routine failed|nvidia: probe of "
        r"\S{1,80} failed|NVRM: None of the NVIDIA devices were initialized",
        "the module found no card that it can start: another driver holds it, the card is too old or new for this "
        "driver, or it does not "
        "answer; the NVRM lines before it state the reason",
        check="N01",
    ),
    Cause(
        "module-signature",
        r"could not insert 'nvidia\w{0,80}': (Key was rejected|Required key|Operation not permitted)|Loading of "
        r"(unsigned|module with unavailable key)|Key was rejected by service|Required key not available|PKCS#7 "
        r"signature not signed with a trusted key",
        _SECURE_BOOT,
    ),
    Cause("module-lockdown", r"Lockdown: .{0,200}(unsigned module|restricted)", _SECURE_BOOT),
    Cause(
        "module-version",
        r"version magic '.{0,200}' should be|disagrees about version of symbol|Invalid module format|Exec format error",
        "the module was built for another kernel: build it for the running one (`dkms autoinstall`), "
        "or boot the kernel that it is for",
    ),
    Cause(
        "module-symbol",
        r"nvidia\w{0,80}: Unknown symbol|Unknown symbol \w{1,80} \(err -?\d{1,20}\)",
        "the module does not fit this kernel: upgrade the driver, or boot an older kernel",
    ),
    Cause(
        "io-page-fault",
        r"IO_PAGE_FAULT|DMAR:.{0,200}fault",
        "the IOMMU refuses a device's memory access: if the device is a card, add iommu=pt to "
        "the kernel's command line",
    ),
    Cause(
        "pcie-error",
        r"PCIe Bus Error: severity=(Uncorrected|Uncorrectable)|AER: .{0,200}[Uu]ncorrect|PCIe Bus Error.{0,200}Fatal",
        "the PCI link to a device fails: check seat and riser, or force a lower PCIe generation in the BIOS setup",
        check="N07",
    ),
    Cause(
        "pcie-corrected",
        r"PCIe Bus Error: severity=Corrected|AER: .{0,200}[Cc]orrected error",
        "the PCI link to a device has errors that were corrected: many of them slow it down; check seat and riser",
        check="N07",
    ),
    Cause(
        "unit-out-of-memory",
        r"Failed with result 'oom-kill'|A process of this unit has been killed by the OOM killer"
        r"|systemd-oomd\b.{0,200}[Kk]illed|Killed /.{0,200} due to memory (used|pressure)",
        "the kernel or systemd ended the service because memory ran out: raise memory_max of its instance, or serve "
        "a smaller context",
    ),
    Cause(
        "hung-task",
        r"blocked for more than \d{1,20} seconds|hung_task|soft lockup|hard LOCKUP|rcu.{0,200}detected stalls",
        "the kernel waits for a device or a lock: look at the disk and the cards; reboot if it continues",
    ),
    Cause(
        "machine-check",
        r"mce: \[Hardware Error\]|Machine Check Exception|EDAC .{0,200} [CU]E ",
        "the processor or the memory reports a hardware fault: test the RAM",
    ),
    Cause(
        "disk-io",
        r"(blk_update_request|critical medium|Buffer I/O) error|I/O error, dev (?!loop)\w{1,80}|nvme\w{0,80} "
        r".{0,200}(timeout|controller is down)|EXT4-fs error",
        "a disk fails: back up, and look at `smartctl -a`",
    ),
    Cause(
        "page-allocation",
        r"page allocation failure: order|swiotlb buffer is full",
        "the kernel found no connected pages of memory: leave more memory free, or drop caches "
        "(`sysctl vm.drop_caches=1`, vm.min_free_kbytes)",
    ),
    Cause(
        "amd-reset",
        r"amdgpu.{0,120}(?:GPU reset|ring \S{1,80} timeout|page fault|GPU hang|failed to (?:load|init))|amdgpu: "
        r".{0,60}fence",
        "the AMD card hung, was reset or did not start: use another kernel or firmware (linux-firmware), or a build "
        "for its "
        "architecture",
    ),
    Cause(
        "uvm-fault",
        r"nvidia-uvm: .{0,100}(?:[Ff]atal|[Ee]rror|[Ff]ail)|uvm_\w{1,80}: .{0,80}(?:fatal|ERROR)",
        "the unified memory module reports a fatal fault of a card: stop the programs that use it, reload nvidia_uvm "
        "or reboot; the Xid before it is the cause",
    ),
    Cause(
        "no-devices",
        r"^No devices were found|nvidia-smi: No devices were found",
        "the driver runs and no card started: the kernel's NVRM lines state the reason (`journalctl -k --grep NVRM`)",
        check="N01",
    ),
    Cause(
        "kernel-oops",
        r"kernel BUG at|Oops: |general protection fault|Kernel panic",
        "the kernel crashed: boot the previous kernel, and review recent upgrades",
    ),
)
